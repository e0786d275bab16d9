"""Files that systems prepare: sampled mini-batches, packed features, artefacts."""
