"""A comparison as the JSON object that `--json` prints."""

from __future__ import annotations

import json

from harness.regress.decision import Comparison


def render(found: Comparison) -> str:
    """Render a comparison as one indented JSON object."""
    return json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n"
