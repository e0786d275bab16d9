"""Regressions of epoch time and of exact counters: two commits held against each other, histories, steps in them."""
