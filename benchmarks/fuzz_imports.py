"""Is every import of a generated graph equal to what a short reader finds in its files, or refused in a sentence?

    python benchmarks/fuzz_imports.py [--imports 20000] [--seed 0] [--processes 2] [--refusals]

Graphs of a few nodes are drawn in every format (`_graph_files.py`), imported, and held against `_graph_readers.py`:
edges with their multiplicity and weights, features, labels, splits and original ids. Exit code 1 for a traceback, a
difference, or a refusal of more than one sentence or that leaves files; `--refusals` lists the sentences.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _graph_files import WRITERS, Draw
from _graph_readers import READERS, Graph, OddError

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

NODE_DATA = NodeDataSpec(dim=2, classes=2)
FRACTIONS = (0.4, 0.3, 0.3)


@dataclass(frozen=True)
class Outcome:
    """Outcome of one import: `equal`, `refused` or a finding's kind."""

    format: str
    seed: int
    kind: str
    text: str = ""  # refusal or finding


def differences(dataset: Dataset, graph: Graph, spec: ImportSpec) -> list[str]:
    """List the parts of a dataset that differ from the graph of its source."""
    indptr, indices = dataset.load("indptr"), dataset.load("indices")
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    found = list(zip(indices.tolist(), targets.tolist(), strict=True))
    count, sums = graph.expected(spec.symmetric, spec.keep_duplicates)
    facts = {"nodes": len(indptr) - 1 == graph.nodes, "edges": Counter(found) == count}
    facts["whether there are weights"] = ("edge_weight" in dataset.manifest.files) == (graph.weights is not None)
    if graph.weights is not None and all(facts.values()):
        wanted = [sums[edge] for edge in found]
        facts["weights"] = np.allclose(dataset.load("edge_weight"), wanted, rtol=1e-6, equal_nan=True)
    if graph.features is not None:
        facts["features"] = np.array_equal(dataset.load("features"), graph.features, equal_nan=True)
    labels = dataset.load("labels").tolist()
    if graph.labels is not None:
        facts["labels"] = labels == graph.labels
    if graph.splits is not None and facts["nodes"]:
        for part, ids in graph.splits.items():
            known = sorted({id_ for id_ in ids if labels[id_] >= 0})
            facts[f"{part} split"] = dataset.load(part).tolist() == known  # type: ignore[arg-type]
    facts["whether there are ids"] = ("ids" in dataset.manifest.files) == (graph.ids is not None)
    if graph.ids is not None and facts["whether there are ids"]:
        facts["ids"] = dataset.load("ids").tolist() == graph.ids
    return [part for part, same in facts.items() if not same]


def outcome(seed: int, root: Path, formats: list[str]) -> Outcome:
    """Draw, write, import and compare one graph."""
    draw = Draw(seed)
    name = draw.one(*formats)
    folder = root / str(seed)
    folder.mkdir()
    source = WRITERS[name](folder / "g", draw)
    symmetric = draw.one(None, None, True, False)
    keep = bool(draw.rarely(0.3))
    spec = ImportSpec(name, symmetric, keep, node_data=NODE_DATA, fractions=FRACTIONS)
    report = partial(Outcome, name, seed)
    target = folder / "data" / "g"
    try:
        dataset = import_dataset(source, target, spec)
    except OutcoreError as error:
        left = list(target.parent.glob("*"))
        sound = type(error) in (InputError, DatasetError) and error.fix and str(error).isprintable() and not left
        return report("refused" if sound else "bad refusal", str(error))
    except Exception:
        return report("traceback", traceback.format_exc(limit=-3))
    try:
        graph = READERS[name](source)
    except OddError:
        line = traceback.format_exc().splitlines()[-5:]
        return report("taken though odd", f"{line} {dataset.manifest.notes}")
    except Exception:
        return report("unread by the reader", traceback.format_exc(limit=-3))
    wrong = [*differences(dataset, graph, spec), *dataset.verify()]
    return report("differs" if wrong else "equal", f"{', '.join(wrong)}; {dataset.manifest.notes}")


def outcomes(seeds: range, formats: list[str]) -> list[Outcome]:
    """Return the outcomes of some seeds; their files are removed as they come."""
    found = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as root:
            found.append(outcome(seed, Path(root), formats))
    return found


def masked(text: str) -> str:
    """Return a refusal without what differs from import to import."""
    return re.sub(r"'[^']*'|/\S+|[0-9]+", "*", text)[:150]


def main() -> int:
    """Print the outcomes by format, and the findings."""
    parser: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--imports", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--formats", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--refusals", action="store_true", help="list the refusals too")
    chosen = parser.parse_args()
    begin = time.perf_counter()
    last = chosen.seed + chosen.imports
    parts = [range(first, min(last, first + 100)) for first in range(chosen.seed, last, 100)]
    with get_context("spawn").Pool(chosen.processes) as pool:
        lists = pool.map(partial(outcomes, formats=chosen.formats), parts, chunksize=1)
    found = [one for part in lists for one in part]
    print(f"{'format':<10} {'imports':>8} {'equal':>8} {'refused':>8} {'findings':>8}")
    for name in [*chosen.formats, "all"]:
        kinds = Counter(one.kind for one in found if name in (one.format, "all"))
        findings = kinds.total() - kinds["equal"] - kinds["refused"]
        print(f"{name:<10} {kinds.total():>8} {kinds['equal']:>8} {kinds['refused']:>8} {findings:>8}")
    print(f"{len(found)} imports in {time.perf_counter() - begin:.0f} s")
    wrong = [one for one in found if one.kind not in ("equal", "refused")]
    for one in wrong[:60]:
        print(f"\n{one.format}, seed {one.seed}: {one.kind}\n{one.text}")
    if chosen.refusals:
        refusals = Counter((one.format, masked(one.text)) for one in found if one.kind == "refused")
        for (name, text), count in refusals.most_common():
            print(f"{count:>6} {name}: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
