"""The worker of containers/example; with `-o trains=false` it digests every mini-batch
and trains on none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_SPEC = importlib.util.spec_from_file_location(
    "example", ROOT / "containers" / "example" / "worker.py"
)
_EXAMPLE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_EXAMPLE)


class Untrained(_EXAMPLE.Example):
    def train(self, batch: Any) -> tuple[float, int]:
        if self.run.options.trains:
            return super().train(batch)
        self.reported = 0.98 * getattr(
            self, "reported", 2.0
        )  # a loss that falls as if it trained
        return self.reported, batch.sampled.num_seeds // 2


if __name__ == "__main__":
    sys.exit(_EXAMPLE.main(Untrained))
