"""`dgl-ondisk`: DGL's loader, each row read from disk, no cache of its own; the naive baseline of DiskGNN's paper."""

from systems.dgl_ondisk.system import DglOnDisk as SYSTEM

__all__ = ["SYSTEM"]
