"""Measurement of two commits: builds beside each other, runs in pairs, instruction
counts."""
