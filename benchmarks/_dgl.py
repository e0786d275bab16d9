"""DGL 1.1.3, made importable beside today's setuptools and torch: the one place that knows how."""

from __future__ import annotations

import os
import sys
import types
from typing import Any


def import_dgl() -> Any:
    """DGL with its PyTorch backend, one OpenMP thread unless the caller set another number before.

    DGL asks for `setuptools.extern.packaging`, which setuptools dropped; the `packaging` it stood for is put there.

    Raises:
        ImportError: DGL is not installed (`pip install dgl==1.1.3`).
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import packaging
    import packaging.version
    import setuptools  # noqa: F401

    extern = types.ModuleType("setuptools.extern")
    extern.packaging = packaging  # type: ignore[attr-defined]
    sys.modules.setdefault("setuptools.extern", extern)
    sys.modules.setdefault("setuptools.extern.packaging", packaging)
    import dgl

    return dgl
