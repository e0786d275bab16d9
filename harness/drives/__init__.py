"""Drives compared by runs: pages, prices and what-if answers."""
