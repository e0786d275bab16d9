"""What a run is and left: its record, the seal over its parts, and the fingerprints of
code, host and environment."""
