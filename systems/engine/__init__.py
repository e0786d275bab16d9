"""Engine that systems share: direct I/O, caches, rankings, stores, and the loading of
mini-batches."""
