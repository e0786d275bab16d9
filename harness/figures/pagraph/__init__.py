"""Figures and tables of the PaGraph paper (SoCC 2020)."""
