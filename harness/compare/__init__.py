"""Comparable runs: planned cells, the records that answer them, and the permitted
differences of two runs."""
