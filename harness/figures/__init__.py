"""The papers' figures, regenerated from run records: one file a figure, found by listing this folder."""
