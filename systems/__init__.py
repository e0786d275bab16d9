"""How data moves: one system is one folder; the I/O and caching engine is under them. Imports only workloads."""
