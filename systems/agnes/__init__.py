"""`agnes`: hyperbatches of mini-batches sampled and gathered block by block (AGNES, KDD
2026, arXiv 2601.01473)."""

from systems.agnes.system import Agnes as SYSTEM

__all__ = ["SYSTEM"]
