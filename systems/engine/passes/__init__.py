"""Passes over the dataset's files for many mini-batches at once: sampling, distribution
of rows, loading of both."""
