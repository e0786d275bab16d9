"""Studies: data for figures, computed from a workload, a generator or the bare device
without a capped run."""
