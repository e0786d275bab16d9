"""Drawings that figures share: bars, lines, curves, stacks, sheets, captions and their
style."""
