"""`outcore.loader`: any system as an ordinary iterable of mini-batches for a user's own
training loop."""

from systems.loading.batches import LayerEdges, MiniBatch
from systems.loading.loader import Loader

__all__ = ["LayerEdges", "Loader", "MiniBatch"]
