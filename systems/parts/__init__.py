"""Systems made of parts: sample, caches, rows and copy; read `path.py` first, then one interface a kind of part."""
