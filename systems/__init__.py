"""Move data: one system is one folder, the I/O and caching engine lies under them.
Imports only workloads."""
