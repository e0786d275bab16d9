"""Conformance of a system to the promises of `systems/interface.py` (`outcore check
SYSTEM`).

`case.py` defines the cases, `drive.py` runs them in a child process, `rules.py` judges
the observations, `runner.py` combines the three.
"""
