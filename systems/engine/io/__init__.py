"""Reads and writes: direct reads of rows, streams, regions, memory and gathers."""
