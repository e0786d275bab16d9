"""Figures of the Data Tiering paper (KDD 2022)."""
