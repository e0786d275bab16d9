"""Figures and tables of the GNNDrive paper (ICPP 2024)."""
