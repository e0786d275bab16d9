"""The computation of a run: datasets, generators, samplers, models and accelerators.
Imports nothing above it."""
