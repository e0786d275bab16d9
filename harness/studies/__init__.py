"""Studies: what figures need that is computed from a workload, a generator or the bare device, without a capped run."""
