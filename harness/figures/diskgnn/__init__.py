"""Figures and tables of the DiskGNN paper (SIGMOD 2025)."""
