"""`systems.loader`: any system as an ordinary iterable of mini-batches for a training loop of one's own."""

from systems.loading.batches import LayerEdges, MiniBatch
from systems.loading.loader import Loader

__all__ = ["LayerEdges", "Loader", "MiniBatch"]
