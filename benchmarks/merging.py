"""The row reader with merging against the same reader without, on rows of which 20 % are adjacent and 10 % duplicates.

    python benchmarks/merging.py [--size 4GiB] [--folder DIR] [--rounds 5] [--rows 100000]

The number of saved requests is known beforehand and must match exactly. Ends with code 1 if it does not, or if merging
is slower.
"""

from __future__ import annotations

import sys

import numpy as np
from _disk import data_file, interleave, parser, verdict

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader

ROW = 512


def draw(rng: np.random.Generator, num_rows: int, count: int) -> np.ndarray:
    """Draw `count` rows, shuffled: 10 % repeat another, 20 % follow another directly, the rest are isolated."""
    repeats, neighbours = count // 10, count // 5
    alone = 3 * rng.permutation(num_rows // 3)[: count - repeats - neighbours]
    picked = np.concatenate([alone, alone[:neighbours] + 1, alone[neighbours : neighbours + repeats]])
    return rng.permutation(picked)


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--depth", type=int, default=256)
    args = options.parse_args()
    rng = np.random.default_rng(1)
    exact = True
    with data_file(args.folder, args.size) as path:
        num_rows = path.stat().st_size // ROW
        out = aligned_empty(args.rows * ROW).reshape(args.rows, ROW)
        expected = {True: args.rows - args.rows // 10 - args.rows // 5, False: args.rows}

        def run(merge: bool) -> float:
            nonlocal exact
            reader = RowReader(path, data_offset=0, num_rows=num_rows, row_bytes=ROW, depth=args.depth, merge=merge)
            rows, seconds = 0, 0.0
            while seconds < args.seconds:
                stats = reader.read(draw(rng, num_rows, args.rows), out)
                exact &= stats.requests == expected[merge]
                rows, seconds = rows + stats.rows, seconds + stats.seconds
            return rows / seconds

        print("rows/s:")
        medians = interleave(args.rounds, {"not merged": lambda: run(False), "merged": lambda: run(True)})
    print(f"requests: {expected[True]:,} merged, {expected[False]:,} not; exact in every read: {exact}")
    faster = verdict("merged / not merged", medians["merged"] / medians["not merged"], 1.0)
    return 0 if faster and exact else 1


if __name__ == "__main__":
    sys.exit(main())
