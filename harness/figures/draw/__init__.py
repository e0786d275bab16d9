"""Drawings that figures share: bars, lines, curves, stacks, timelines, sheets, captions and their style."""
