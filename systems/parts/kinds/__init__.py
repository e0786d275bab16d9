"""Kinds of parts: an implementation of one interface a file."""
