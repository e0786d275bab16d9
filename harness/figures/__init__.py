"""The papers' figures, regenerated from run records: one file per figure, found by
listing this folder."""
