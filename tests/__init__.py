"""The tests; imported before any of them, so native modules built with sanitizers can take the place of the installed.

`scripts/sanitize` names such a module in OUTCORE_WORKLOADS_NATIVE or OUTCORE_SYSTEMS_NATIVE.
"""

import importlib.util
import os
import sys

for _layer in ("workloads", "systems"):
    if _built := os.environ.get(f"OUTCORE_{_layer.upper()}_NATIVE"):
        _spec = importlib.util.spec_from_file_location(f"{_layer}._native", _built)
        assert _spec is not None and _spec.loader is not None
        _module = importlib.util.module_from_spec(_spec)
        sys.modules[f"{_layer}._native"] = _module
        _spec.loader.exec_module(_module)
