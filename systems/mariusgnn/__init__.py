"""`mariusgnn`: partitions buffered in memory; sampling only among them (MariusGNN, node
classification)."""

from systems.mariusgnn.system import MariusGnn as SYSTEM

__all__ = ["SYSTEM"]
