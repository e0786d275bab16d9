"""Figures and tables of the PaGraph paper (TPDS 2021)."""
