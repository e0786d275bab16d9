"""The choice of a system for a graph, a memory and a disk: every system's reads
forecast from a share of an epoch.

`trace` samples some mini-batches; each system plans and forecasts its own reads
(`System.forecast`); `advice` applies a device profile and ranks the systems by the time
of a whole training.
"""
