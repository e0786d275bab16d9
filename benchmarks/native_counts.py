"""How many instructions do the native hot paths take? Sampler, reader, changeset,
packing, gather, by callgrind.

`python -m benchmarks.native_counts` prints them; `--out FILE` saves them; `--against
FILE` compares with saved counts and exits with 1 if one grew by more than 1 %;
`--python PATH` counts another commit's modules. `--rounds 2` prints the difference of
two counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from harness.regress.measure.instructions import compare_counts, count
from workloads.errors import OutcoreError


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    try:
        counts = [count(options.python) for _ in range(options.rounds)]
    except OutcoreError as error:
        print(f"native_counts: {error}", file=sys.stderr)
        return error.exit_code
    for name, found in counts[0].items():
        every = [entry[name] for entry in counts]
        spread = f"  (differ by {max(every) - min(every):,})" if len(every) > 1 else ""
        print(f"{name:10} {found:>14,} instructions{spread}")
    if options.out:
        options.out.write_text(json.dumps(counts[0], indent=1) + "\n", encoding="utf-8")
    if options.against is None:
        return 0
    results = compare_counts(
        json.loads(options.against.read_text(encoding="utf-8")), counts[0]
    )
    for result in results:
        print(
            f"{result.name}: {result.decision}"
            + (f", {100 * (result.ratio - 1):+.2f} %" if result.ratio else "")
        )
    return int(any(result.decision == "regressed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
