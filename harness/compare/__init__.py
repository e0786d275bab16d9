"""Which runs are comparable: planned cells, the records that answer them, and what may differ between two runs."""
