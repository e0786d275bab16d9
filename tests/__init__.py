"""Tests. Imported first, so that native modules built with sanitizers can replace the
installed ones.

`scripts/sanitize` passes the paths of such modules in OUTCORE_WORKLOADS_NATIVE and
OUTCORE_SYSTEMS_NATIVE.
"""

import importlib.util
import os
import sys

for _layer in ("workloads", "systems"):
    if _built := os.environ.get(f"OUTCORE_{_layer.upper()}_NATIVE"):
        _spec = importlib.util.spec_from_file_location(f"{_layer}._native", _built)
        assert _spec is not None
        assert _spec.loader is not None
        _module = importlib.util.module_from_spec(_spec)
        sys.modules[f"{_layer}._native"] = _module
        _spec.loader.exec_module(_module)
