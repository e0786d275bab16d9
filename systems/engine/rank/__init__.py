"""Rankings of nodes for caching, and partitions of training nodes."""
