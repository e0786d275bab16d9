"""DGL as a peer: its import, and the base of the systems that load through it."""
