"""Regressions of epoch time and exact counters: comparisons of two commits, histories
of baselines, steps in them."""
