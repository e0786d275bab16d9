"""`dgl`: DGL's loader over graph and features in memory; the baseline of PaGraph's paper."""

from systems.dgl.system import Dgl as SYSTEM

__all__ = ["SYSTEM"]
