"""Loading of mini-batches: the pipeline, the loaders and the bases that systems derive
from."""
