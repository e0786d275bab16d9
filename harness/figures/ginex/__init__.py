"""Figures and tables of the Ginex paper (VLDB 2022)."""
