"""Output formats of a comparison: a function from a comparison to text, or to several
files' names and texts."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.atomic import whole_file
from harness.regress import rows
from harness.regress.comment import markdown
from harness.regress.decision import Comparison, MetricResult
from harness.regress.samples import COSTS
from workloads.errors import InputError

# Characters that XML 1.0 forbids.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ENVIRONMENT = "existing-outcore"
_COLUMNS = (
    "result params version started_at duration stats_ci_99_a stats_ci_99_b stats_q_25 "
    "stats_q_75 stats_number stats_repeat samples profile"
).split()


def write(kind: str, path: Path, found: Comparison) -> None:
    """Write a comparison in one format, each file whole or not at all.

    `kind` is one of KINDS, `path` the file or, for `asv`, the results folder. Raises
    InputError: unknown format, or `asv` for a comparison of folders; DataIOError: a
    file cannot be written.
    """
    if kind not in KINDS:
        raise InputError(
            f"there is no output {kind!r}", f"choose one of {', '.join(KINDS)}"
        )
    made = KINDS[kind](found)
    for name, text in made.items() if isinstance(made, dict) else [("", made)]:
        with whole_file(path / name, "the comparison") as partial:
            partial.write_text(text, encoding="utf-8")


def junit(found: Comparison) -> str:
    """Render JUnit XML with one test case per metric: *regressed* fails, *undecided* is
    skipped."""
    failed = [
        metric
        for metric in found.metrics
        if metric.gates and metric.decision == "regressed"
    ]
    skipped = [
        one
        for one in found.metrics
        if one.decision in ("regressed", "undecided") and one not in failed
    ]
    root = ET.Element("testsuites", name="outcore")
    suite = ET.SubElement(
        root,
        "testsuite",
        name="outcore regress",
        tests=str(len(found.metrics)),
        errors="0",
        failures=str(len(failed)),
        skipped=str(len(skipped)),
        time=f"{float(found.details.get('seconds', 0.0)):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, text in (
        ("base", found.base),
        ("head", found.head),
        ("decision", found.decision),
    ):
        ET.SubElement(properties, "property", name=name, value=_clean(text))
    for metric in found.metrics:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_clean(f"outcore.{metric.cell}"),
            name=_clean(metric.name),
        )
        moved = (
            f"{rows.value(metric, metric.base)} -> {rows.value(metric, metric.head)}, "
            f"{rows.change(metric)}"
        )
        fault = _clean("; ".join(part for part in (moved, rows.why(metric)) if part))
        if metric in failed:
            ET.SubElement(case, "failure", type="regressed", message=fault).text = fault
        elif metric in skipped:
            ET.SubElement(case, "skipped", message=fault)
        else:
            ET.SubElement(case, "system-out").text = f"{metric.decision}: {fault}"
    if found.notes:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(found.notes))
    ET.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ET.tostring(root, encoding="unicode")
        + "\n"
    )


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)


def _as_text(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def github_benchmark(found: Comparison) -> str:
    """Render times, sizes and costs for the tool `customSmallerIsBetter`; digests and
    numbers of rows are left out."""
    entries = []
    for metric in found.metrics:
        if isinstance(metric.head, str | None) or (
            metric.kind == "exact" and metric.name not in COSTS
        ):
            continue
        entry: dict[str, str | float] = {
            "name": metric.metric,
            "unit": metric.unit or "count",
            "value": metric.head,
            "extra": f"{metric.decision}, {rows.change(metric)} against {found.base}",
        }
        if metric.interval is not None and metric.ratio:
            reach = (
                max(
                    metric.interval[1] - metric.ratio, metric.ratio - metric.interval[0]
                )
                / metric.ratio
            )
            entry["range"] = (
                f"± {100 * reach:.1f} % ({metric.interval_kind} of the ratio)"
            )
        entries.append(entry)
    return _as_text(entries)


def bencher(found: Comparison) -> str:
    """Render head's numbers as Bencher Metric Format: benchmark (a cell) -> measure ->
    value.

    `lower_value` and `upper_value` are left out: the gate's intervals are of the ratio
    to base, not of head's values.
    """
    content: dict[str, dict[str, dict[str, float]]] = {}
    for metric in found.metrics:
        if isinstance(metric.head, int | float):
            unit = {"s": "seconds"}.get(metric.unit, metric.unit)
            words = metric.name if unit in metric.name else f"{metric.name} {unit}"
            slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
            content.setdefault(metric.cell, {})[slug] = {"value": float(metric.head)}
    return _as_text(content)


def asv(found: Comparison) -> dict[str, str]:
    """Return file name -> content for asv's `results` folder:
    `<machine>/<commit>-<environment>.json`, `machine.json` and `benchmarks.json`; raise
    InputError for folders, as asv keeps commits.

    Each metric with a number on both sides becomes a `track_` benchmark, with the
    median of its runs as the result. asv's confidence limits and samples stay null,
    since the gate's are of the ratio; digests, statuses and decisions have no field in
    asv and are left out.
    """
    commits = found.details.get("commits")
    if not commits:
        raise InputError(
            "asv's results are kept by commit, and this comparison is of folders",
            "use `regress check`",
        )
    machine = str(found.details.get("host") or "unknown")
    host = {
        "machine": machine,
        **dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), ""),
    }
    numbers = {
        _benchmark(metric): metric
        for metric in found.metrics
        if isinstance(metric.base, int | float) and isinstance(metric.head, int | float)
    }
    shared = {
        "param_names": [],
        "params": [],
        "timeout": 0.0,
        "type": "track",
        "version": "1",
    }
    benchmarks: dict[str, Any] = {
        name: {
            "code": metric.metric,
            "name": name,
            "unit": metric.unit or "count",
            **shared,
        }
        for name, metric in numbers.items()
    }
    unknown = [None] * (len(_COLUMNS) - 4)
    now = int(time.time() * 1000)
    made = {
        "benchmarks.json": {**benchmarks, "version": 2},
        f"{machine}/machine.json": {**host, "version": 1},
    }
    for side in ("base", "head"):
        commit = commits[side]
        made[f"{machine}/{commit[:8]}-{ENVIRONMENT}.json"] = {
            "commit_hash": commit,
            "env_name": ENVIRONMENT,
            "date": int(found.details["dates"][side]) * 1000,
            "params": {**host, "python": ""},
            "python": "",
            "requirements": {},
            "env_vars": {},
            "result_columns": _COLUMNS,
            "results": {
                name: [[getattr(metric, side)], [], "1", now, *unknown]
                for name, metric in numbers.items()
            },
            "durations": {},
            "version": 2,
        }
    return {name: _as_text(content) for name, content in made.items()}


def _benchmark(metric: MetricResult) -> str:
    words = re.sub(
        r"[^A-Za-z0-9]+", "_", f"{metric.cell} {metric.name}".replace("+", " plus ")
    ).strip("_")
    return f"outcore.track_{words}"


# A new format is a function and its entry here.
KINDS: dict[str, Callable[[Comparison], str | dict[str, str]]] = {
    "markdown": markdown,
    "junit": junit,
    "json": lambda found: _as_text(found.to_json()),
    "github-benchmark": github_benchmark,
    "bmf": bencher,
    "asv": asv,
}
