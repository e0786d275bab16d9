"""Mini-batches: samplers and their listing, the seed plan, digests, and the bounds of a
run's batches."""
