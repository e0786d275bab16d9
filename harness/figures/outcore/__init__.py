"""Figures of Outcore itself."""
