"""Pictures and tables of README and docs, made from reference results.

`python -m harness.report.readme [FOLDER]` writes them; with `--check` it exits with 1 if they differ.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import harness
from harness.compare.epochs import mini_batches, part_of_epoch, with_part
from harness.compare.evidence import Evidence, load_evidence
from harness.compare.plan import Plain
from harness.compare.points import Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import chosen
from harness.figures.draw import style
from harness.figures.draw.captions import graph_size
from harness.figures.draw.panels import MARK
from harness.figures.outcore.runs import budget_bytes, over_memory, row_of
from harness.figures.render import DATA, render
from harness.records.cost import TrainingCost, episode_epochs, leaders, leading
from harness.results.reference import FOLDER, Reference, references, unpacked
from workloads.errors import InputError, OutcoreError
from workloads.units import format_bytes, row_bytes

ROOT = Path(harness.__file__).parent.parent
HERE = ROOT / "results" / FOLDER
#: Pages with the table, between its marks, and pictures by their figures.
PAGES = ("README.md", "docs/frontier.md")
PICTURES = ("outcore-training", "outcore-frontier", "outcore-roofline")
#: Numbers of a row (`row_of`) that the table shows, with the begin of the sentence on the least of each.
_SHOWN = {"seconds": "Least for a fresh epoch", "whole_training_s": "Least for the whole training"}
COMMAND = "python -m harness.report.readme"
_BEGIN, _END = f"<!-- `{COMMAND}` writes this from reference results -->", "<!-- end of reference results -->"
_BLOCK = re.compile(f"{re.escape(_BEGIN)}\n\n(.*?){re.escape(_END)}", re.DOTALL)


def table_of(evidence: Evidence, reference: Reference) -> str:
    """Return seconds of an epoch by system and memory as Markdown, with setting and conclusions in words.

    Raises:
        NotDrawn: the runs are of fewer than two budgets.
    """
    points = [point for point in evidence.points("outcore-frontier", over_memory).points if point.x != "none"]
    data = points[0].record["config"]["dataset"]
    features = data["num_nodes"] * row_bytes(data["dim"], data["dtype"])
    rows = [row for row in map(row_of, points) if row["budget_bytes"]]
    systems = style.ordered([row["system"] for row in rows])
    budgets: dict[int, dict[str, Plain]] = {}
    for row in sorted(rows, key=lambda row: int(row["budget_bytes"])):
        budgets.setdefault(row["budget_bytes"], {})[row["system"]] = row
    lines = [f"| {' | '.join(['budget, of the features', 'graph/budget', *(f'`{name}`' for name in systems)])} |"]
    lines.append("| --- " * (len(systems) + 2) + "|")
    for budget, found in budgets.items():
        graph = next((row["graph_over_budget"] for row in found.values() if row["graph_over_budget"] is not None), None)
        cells = [_share(budget, features), "–" if graph is None else f"{graph:.2f}"]
        best = {key: min(_known(found, key), default=None) for key in _SHOWN}
        lines.append(f"| {' | '.join([*cells, *(_cell(found.get(name), best) for name in systems)])} |")
    told = [*_fastest(budgets, features), *_trainings(points, features), _verdicts(evidence, points)]
    return "\n".join([_setting(points, reference), "", *lines, "", *told, "", ""])


def _known(found: dict[str, Plain], key: str) -> list[float]:
    return [row[key] for row in found.values() if row[key] is not None]


def _share(budget: int, features: int) -> str:
    """Return a budget as a share of the features, as a fraction where it is near one; else in bytes, too."""
    share = Fraction(budget, features).limit_denominator(64)
    near = share.numerator and abs(budget / features / share - 1) < 0.01 and 1 in (share.numerator, share.denominator)
    return str(share) if near else f"{format_bytes(budget)} ({budget / features:.2g})"


def _cell(row: Plain | None, best: dict[str, float | None]) -> str:
    """Return seconds of a fresh epoch, in brackets of one of the whole training; the least of a budget are bold."""
    if row is None or row["seconds"] is None:
        return "–" if row is None else str(MARK.get(row["status"], row["status"]))
    numbers = []
    for key in _SHOWN:
        text = "–" if row[key] is None else f"{row[key]:.2f}" if row[key] < 10 else f"{row[key]:.1f}"
        numbers.append(f"**{text}**" if row[key] is not None and row[key] == best[key] else text)
    return f"{numbers[0]} ({numbers[1]})"


def _setting(points: Sequence[Point], reference: Reference) -> str:
    config = points[0].record["config"]
    data, epochs, rounds = config["dataset"], config["epochs"], max(point.samples for point in points)
    emulated = str(config["device"]).removeprefix("emulated:")
    device = f"emulated {emulated}" if emulated != config["device"] else f"device {emulated}"
    own = (one for one in reference.commands if one.endswith(f" {config['experiment']}"))
    command = next(own, reference.commands[0])
    parts = [
        f"{data['name']}, {graph_size(data['num_nodes'], data['num_edges'])}, "
        f"{row_bytes(data['dim'], data['dtype'])}-byte rows",
        f"mini-batches of {config['batch_size']}, fan-out {','.join(map(str, config['fanout']))}, {device}",
        f"SSD class {config['disk_class']}",
        f"mean of {rounds} epoch{'s' * (rounds > 1)}",
        f"`{command}`",
    ]
    told = f"Seconds of {_epoch_of(config)}, with all of its work, by memory; in brackets a training of"
    whole = f"{epochs} epochs, the first one's surplus and one-time work included, divided by them"
    return f"{told} {whole} ({'; '.join(parts)}). {reference.label}."


def _epoch_of(config: Plain) -> str:
    """Return `an epoch` with the number of its mini-batches, or the part of them that was trained."""
    _, whole = mini_batches(config)
    part = part_of_epoch(config)
    if part or whole is None:
        return with_part("of an epoch", part).removeprefix("of ")
    return f"an epoch of all {whole:,} mini-batches"


def _fastest(budgets: dict[int, dict[str, Plain]], features: int) -> Iterator[str]:
    """Yield sentences on the fastest systems by budget, by a fresh epoch and by the whole training."""
    for key, told in _SHOWN.items():
        first: dict[str, list[str]] = {}
        for budget, found in budgets.items():
            done = [row for row in found.values() if row[key] is not None]
            if done:
                name = min(done, key=lambda row: float(row[key]))["system"]
                first.setdefault(name, []).append(_share(budget, features))
        if first:
            yield f"{told}: {', '.join(f'`{name}` at {_listed(shares)}' for name, shares in first.items())}."


def _trainings(points: Sequence[Point], features: int) -> Iterator[str]:
    """Yield a sentence on the budgets where it depends on the number of epochs which training takes the least time."""
    costs: dict[int, dict[str, TrainingCost]] = {}
    for point in points:
        budget = budget_bytes(point.record)
        if point.cost is not None and budget:
            costs.setdefault(budget, {})[f"`{point.system}`"] = point.cost
    turns = [
        f"at {_share(budget, features)} {leaders(found)}"
        for budget, found in sorted(costs.items())
        if len(list(leading(found))) > 1
    ]
    shared = {point.system: episode_epochs(point.record) for point in points if episode_epochs(point.record)}
    for system, count in shared.items():
        yield f"`{system}` prepared {count} epochs together: more at once may cost less an epoch than the table says."
    if turns:
        yield f"By number of epochs, with all work counted, the least time is that of: {'; '.join(turns)}."


def _verdicts(evidence: Evidence, points: Sequence[Point]) -> str:
    """Return the verdicts of all runs of the points' experiments in a sentence."""
    experiments = {point.record["config"]["experiment"] for point in points}
    runs = [record for record in evidence.records if record["config"]["experiment"] in experiments]
    verdicts = Counter(record["verdict"] for record in runs)
    counts = ", ".join(f"{count} are `{verdict}`" for verdict, count in verdicts.most_common())
    return f"Of {len(runs)} runs {counts}."


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def differing(folder: Path, root: Path = ROOT, *, write: bool = False) -> list[str]:
    """Return the pages and pictures that differ from reference results, and write them where `write` says so.

    Raises:
        InputError: the reference results are invalid or lack a figure, or a page has no marks.
        DataIOError: a file cannot be written.
    """
    reference = unpacked(folder)
    evidence = load_evidence(folder)
    try:
        block = table_of(evidence, reference)
    except NotDrawn as reason:
        raise InputError(f"{folder} has no runs by memory: {reason}", "make them, and archive again") from reason
    found = []
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        if (kept := _BLOCK.search(text)) is None:
            raise InputError(f"{name} has no place for the table", f"put it between {_BEGIN} and {_END}")
        if kept[1] != block:
            found.append(name)
            if write:
                new = f"{text[: kept.start(1)]}{block}{text[kept.end(1) :]}"
                (root / name).write_text(new, encoding="utf-8")
    for one in render(chosen(",".join(PICTURES)), evidence, folder / "figures"):
        if one.status != "drawn":
            raise InputError(f"{folder} has no {one.id}: {one.reason}", "make its runs, and archive again")
        picture = root / "docs" / "img" / f"{one.id}.png"
        if _data_of(picture) != _data_of(one.files[0]):
            found.append(str(picture.relative_to(root)))
            if write:
                picture.write_bytes(one.files[0].read_bytes())
    return found


def _data_of(picture: Path) -> str | None:
    """Return the digest of the data behind a picture; None where it has none."""
    from PIL import Image

    if not picture.is_file():
        return None
    with Image.open(picture) as image:
        return image.info.get(DATA)


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Write or check the pages and pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="reference results (default: the first of the repository)")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 where something differs")
    given = parser.parse_args(argv)
    folder = given.folder or next(iter(references(HERE)), None)
    if folder is None:
        say(f"skipped: {HERE.relative_to(ROOT)} holds no reference results")
        return 0
    try:
        found = differing(folder, write=not given.check)
    except OutcoreError as error:
        say(f"{COMMAND}: {error}")
        return error.exit_code
    if given.check and found:
        say(f"{_listed(found)} differ from {folder}: run `{COMMAND}`")
        return 1
    say("\n".join(found) or f"all as in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
