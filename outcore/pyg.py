"""Stores for PyG's own loaders: `NeighborLoader((FeatureStore(data), GraphStore(data)),
...)` reads rows from disk."""

from systems.loading.pyg_stores import FeatureStore, GraphStore

__all__ = ["FeatureStore", "GraphStore"]
