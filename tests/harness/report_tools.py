"""Results roots for tests of the report: runs with telemetry and stages, and a run
whose every text is hostile."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.figures.base import catalogue
from harness.records.record import PlannedBuffer, Record, RuleOutcome
from harness.report import write_report
from harness.report.beside import RUNS, folder_of
from harness.results.store import write_run
from tests.harness.claim_records import profile
from tests.harness.records import make_record, telemetry_of
from tests.harness.study_records import fio_grid, put_study
from tests.support import made_once

EVIL = (
    "</script><script>window.hostile=1</script><img src=x "
    "onerror='window.hostile=1'>\"'&{{7*7}}"
)
# Without the slash, for the name of a folder.
EVIL_NAME = "<img src=x onerror='window.hostile=1'>&\"%41"
HOSTS = (
    {"cpu": {"model": "one", "usable": 2}},
    {"cpu": {"model": "other", "usable": 64}},
)


def changed(record: Record, **updates: Any) -> Record:
    """Return the record with fields replaced."""
    return record.model_copy(update=updates)


def stages_of(record: Record, batches: int = 20) -> pd.DataFrame:
    """Return spans of sample, extract and train for each mini-batch of each epoch, and
    of a device lane."""
    rows = []
    for epoch in record.epochs:
        step = epoch.seconds / (batches + 2)
        for batch in range(batches):
            begin = epoch.start_s + batch * step
            rows += [
                (
                    epoch.epoch,
                    batch,
                    stage,
                    f"{stage}-0",
                    begin + k * step,
                    begin + (k + 0.9) * step,
                )
                for k, stage in enumerate(
                    ("sample", "extract", "train", "lane:compute")
                )
            ]
    return pd.DataFrame(
        rows, columns=["epoch", "batch", "stage", "thread", "start", "end"]
    )


def full_telemetry(record: Record) -> pd.DataFrame:
    """Return telemetry at 10 Hz with all columns that the page draws."""
    table = telemetry_of(record)
    wave = np.asarray(table["cpu_percent"])
    return table.assign(
        mem_usage=wave * 2**20,
        mem_anon=wave * 2**19,
        mem_page_cache=wave * 2**18,
        disk_read_bytes=wave * 1e5,
        disk_read_requests=wave * 10,
    )


def keep(root: Path, *records: Record, log: str = "") -> None:
    """Write records with telemetry, stages and a worker's log."""
    for record in records:
        tables = (
            {"telemetry": full_telemetry(record), "stages": stages_of(record)}
            if record.epochs
            else {}
        )
        file = root / "worker.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(log or f"worker of {record.run_id}\n")
        write_run(root, record, tables, log=file)
        file.unlink()


def hostile() -> Record:
    """Make a record with markup and scripts in every text."""
    record = make_record("gnndrive", [5.0, 6.0])
    config = record.config.model_copy(
        update={
            "system": EVIL,
            "options": {EVIL: EVIL},
            "model": "gat",
            "memory": EVIL,
            "experiment": EVIL,
            "device": EVIL,
            "disk_class": EVIL,
            "dataset": record.config.dataset.model_copy(update={"name": EVIL}),
        }
    )
    return changed(
        record,
        run_id=f"20260202-{EVIL_NAME}",
        system=EVIL,
        config=config,
        reason=EVIL,
        caveats=[EVIL],
        notes={EVIL: EVIL},
        environment={
            EVIL: {EVIL: EVIL},
            "cpu": {"model": EVIL},
            "code": {"commit": EVIL},
        },
        verdict_rules=[RuleOutcome(rule=EVIL, name=EVIL, ok=False, detail=EVIL)],
        started_at=EVIL,
        memory=record.memory.model_copy(
            update={"plan": [PlannedBuffer(name=EVIL, bytes=1)]}
        ),
        epochs=[
            epoch.model_copy(update={"stages_s": {EVIL: 1.0}, "digest": EVIL})
            for epoch in record.epochs
        ],
        summary=record.summary.model_copy(
            update={"stages_s": {EVIL: 1.0}, "extra": {EVIL: EVIL}}
        ),
    )


def disk_study(root: Path) -> None:
    """Write the study that a figure and two claims of GNNDrive need."""
    for need in catalogue()["gnndrive-figB1"].studies(profile()):
        put_study(root, need.study, fio_grid(), **need.params)


def fill(root: Path) -> None:
    """Write runs of three systems at three caps, two hosts and two devices; one is OOM,
    one invalid, one hostile. A study of the disk draws a picture."""
    disk_study(root)
    for memory in (32, 64, 128):
        for system, base in (("pyg+", 40.0), ("ginex", 30.0), ("gnndrive", 24.0)):
            times = [base * noise * (64 / memory) ** 0.5 for noise in (1.0, 1.02, 1.04)]
            for round_ in (0, 1):
                record = make_record(
                    system,
                    times,
                    memory=f"+{memory * 2**20}",
                    round=round_,
                    experiment="quick",
                )
                plan = [
                    PlannedBuffer(name="feature buffer", bytes=48 * 2**20),
                    PlannedBuffer(name="indptr", bytes=2**20),
                ]
                held = record.memory.model_copy(
                    update={"plan": plan, "cap_bytes": 200 * 2**20, "peak_bytes": 2**27}
                )
                summary = record.summary.model_copy(
                    update={"stages_s": {"sample": 0.5, "extract": base * 0.9}}
                )
                own = (
                    {"inspect": 1.0, "switch": 0.1, "cache_update": 0.1}
                    if system == "ginex"
                    else {}
                )
                epochs = [
                    epoch.model_copy(update={"stages_s": {**epoch.stages_s, **own}})
                    for epoch in record.epochs
                ]
                keep(
                    root,
                    changed(
                        record,
                        memory=held,
                        summary=summary,
                        epochs=epochs,
                        environment=HOSTS[0],
                    ),
                )
    keep(
        root,
        changed(
            make_record("in-memory", [], status="oom", experiment="quick"),
            reason="oom",
            environment=HOSTS[0],
        ),
    )
    keep(
        root,
        changed(make_record("diskgnn", [1.0], verdict="INVALID"), environment=HOSTS[0]),
    )
    keep(root, changed(make_record("gnndrive", [3.0, 3.1]), environment=HOSTS[1]))
    keep(
        root,
        changed(
            make_record("gnndrive", [90.0], device="cpu", device_memory_bytes=None),
            environment=HOSTS[0],
        ),
    )
    keep(root, hostile(), log=EVIL + "\n")


def filled_root(factory: pytest.TempPathFactory) -> Path:
    """Return a results root with `fill` and its report; made once for all tests, which
    only read it."""

    def make(root: Path) -> None:
        fill(root)
        write_report(root)

    return made_once(factory, "filled-results", make)


def written_folder(page: Path) -> Path:
    """Return the folder of a page's pictures and runs, the only one there is."""
    (place,) = folder_of(page).iterdir()
    return place


def pages_of_runs(page: Path) -> dict[str, Any]:
    """Return `details` and `moving` of each run, by id, as the page receives them."""
    found = {}
    for script in (written_folder(page) / RUNS).iterdir():
        arguments = script.read_text().removeprefix("Report.receive(")
        run, text = json.loads(f"[{arguments.removesuffix(');' + chr(10))}]")
        assert script.name == f"{run}.js"
        found[run] = json.loads(gzip.decompress(base64.b64decode(text)))
    return found


def timelines(page: Path) -> set[str]:
    """Return the ids of the runs with timelines."""
    return {run for run, parts in pages_of_runs(page).items() if parts["moving"]}


class Page(HTMLParser):
    """A page as a browser parses it: its tags, attributes, scripts and visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._text: list[str] = []
        self._inside = ""
        self.feed(text)
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self._text.append(data)
