"""Fixtures that all test folders share."""

from __future__ import annotations

import gc

import pytest

from tests.support import make_tiny
from workloads.dataset import Dataset


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """2,000 nodes, 20,000 edges, 16 float32 columns; read-only, shared by the session."""
    return make_tiny(tmp_path_factory.mktemp("data") / "tiny")


def pytest_collection_finish() -> None:
    """Leave the session's thousands of tests out of every later collection of garbage."""
    gc.collect()
    gc.freeze()
