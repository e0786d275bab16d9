"""Figures and tables of the DiskGNN paper (2024)."""
