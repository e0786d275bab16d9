"""What is computed: datasets, generators, samplers, models and accelerators. Imports nothing above it."""
