"""DiskGNN Tables 1 (time, disk access, accuracy), 5 and 6 (accuracy by model and sampler) and 8 (the pipeline)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures import accuracy_runs as accuracy
from harness.figures.base import Sheet, figure, figure_of_runs, ids, paper_rows, paper_value, sheet, specs
from harness.figures.diskgnn.epochs import judged
from harness.figures.diskgnn.grid import SYSTEMS, entries, in_gallery, over_shares, percent
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import describe_memory
from harness.figures.grids import host_budget
from harness.results.table import preparation_s

SPEC = specs(__file__)
#: A row's label, model, sampler, and the systems that support them.
Part = tuple[str, str, str, list[str]]


def budgets(profile: Plain) -> Plan:
    """Plan the three systems at the profile's memory, and at a little more, which mariusgnn may need."""
    more = round(SPEC["tab1"]["more_memory"] * host_budget(profile))
    return in_gallery(profile, SYSTEMS, {"": {}, "more": {"memory": f"+{more}"}})


def _measures(point: Point) -> dict[str, float | None]:
    training, before = sum(float(epoch["seconds"]) for epoch in point.record["epochs"]), preparation_s(point.record)
    volumes = [float(epoch["device_bytes"]) for epoch in point.epochs if epoch["device_bytes"] is not None]
    volume = sum(volumes) / len(volumes) / 1e9 if volumes else None
    try:
        disk: float | None = run_breakdown(point, [("disk", SPEC["tab1"]["disk"])], "rest")["disk"]
    except NotDrawn:
        disk = None
    spent = {"end-to-end": before + training, "preprocessing": before, "training": training, "epoch": point.value}
    return {**spent, "disk access": disk, "disk volume": volume}


@figure("diskgnn-tab1", budgets, beside=lambda profile: [judged(profile).experiment("diskgnn-tab1-accuracy")])
def tab1(evidence: Evidence) -> Sheet:
    """Return one row per measure, one column per system, with the paper's; raise NotDrawn without a measured epoch.

    All columns are of one memory: of the two the one with which more systems ended well, the less of equals.
    """
    group = evidence.points("diskgnn-tab1", budgets, least=1)
    done = max(([point for point in group.done if point.x == x] for x in ("", "more")), key=len)
    if not done:
        raise NotDrawn("none of ginex, mariusgnn and diskgnn has a measured epoch")
    found: dict[str, Mapping[str, float | None]] = {point.system: _measures(point) for point in done}
    trained = evidence.points("diskgnn-tab1", judged, least=0).done
    for point in trained:
        best = accuracy.best_accuracy(point.record)
        found[point.system] = {**found.get(point.system, {}), "test accuracy": None if best is None else 100 * best}
    rows: list[Plain] = []
    for measure, unit in SPEC["tab1"]["units"].items():
        row: Plain = {"measure": measure, "unit": unit}
        row |= {system: found.get(system, {}).get(measure) for system in SYSTEMS}
        paper = {str(known["series"]): known for known in paper_rows("diskgnn-tab1") if known["x"] == measure}
        for system in SYSTEMS:
            row[f"{system}, paper"] = float(paper[system]["value"]) if system in paper else None
            row["paper unit"] = str(paper[system]["unit"]) if system in paper else row.get("paper unit")
        rows.append(row)
    columns: dict[str, str] = {"measure": "", "unit": "", **dict.fromkeys(SYSTEMS, ".3g")}
    columns |= {**{f"{system}, paper": ".4g" for system in SYSTEMS}, "paper unit": ""}
    source = "of the runs of diskgnn-fig8" if trained else "not run"
    note = SPEC["tab1"]["note"].format(len(done[0].record["epochs"]), source)
    memory = f"memory: {describe_memory(done[0].record['config']['memory'])}"
    failed = [
        f"{point.system} {point.told} with {describe_memory(point.record['config']['memory'])}"
        for point in group.points
        if point.value is None
    ]
    return sheet(rows, columns, group, memory, note, *failed, points=done, runs=ids([*done, *trained]))


def plan_of(part: Part) -> Callable[[Plain], Plan]:
    """Return the plan of the accuracy runs of one part of a table."""
    _, model, sampler, systems = part
    return lambda profile: accuracy.accuracy_plan(
        profile, entries(accuracy.accuracy_profile(profile, model), systems), model=model, sampler=sampler
    )


def accuracy_table(table: str, parts: Sequence[Part]) -> None:
    """Add a table of test accuracy and end-to-end time to the catalogue, one row per part and system."""

    @figure(table, lambda profile: [plan_of(part)(profile).experiment(f"{table}-{part[0]}") for part in parts])
    def draw(evidence: Evidence) -> Sheet:
        rows: list[Plain] = []
        groups: list[Group] = []
        said: list[str] = []
        for part in parts:
            group = evidence.points(table, plan_of(part), least=0)
            target = accuracy.common_target([point.record for point in group.done])
            if target is not None:
                said.append(f"{part[0]} target {100 * target:.1f} %")
            rows += [_row(table, part[0], group.at(system), target) for system in part[3]]
            groups += [group] if group.done else []
        if not groups:
            raise NotDrawn("no run judged its model on test nodes after every epoch")
        done = groups[0].done
        told = SPEC["note"].format("; ".join(["", *said]), ", ".join(part[0] for part in parts))
        runs = [run for group in groups for run in ids(group.done)]
        return sheet(rows, SPEC["columns"], groups[0], accuracy.origin(done[0].record), told, points=done, runs=runs)


def _row(table: str, label: str, point: Point, target: float | None) -> Plain:
    row: Plain = {"model": label, "system": point.system}
    if point.value is None:
        row["accuracy (%)"] = point.told
    elif (best := accuracy.best_accuracy(point.record)) is not None:
        curve = accuracy.accuracy_curve(point.record)
        row |= {"accuracy (%)": 100 * best, "end to end (s)": float(curve["end_to_end"].iloc[-1])}
        row |= {"epochs": len(curve), "run": point.run}
        if target is not None:
            row["to the target (s)"] = accuracy.at_target(point.record, target, "end_to_end")
    for known in paper_rows(table, f"{label} {point.system}"):
        graph, _, what = str(known["x"]).rpartition(" ")
        if graph == "Papers100M":
            row["paper (%)" if what == "accuracy" else "paper (h)"] = float(known["value"])
    return row


accuracy_table("diskgnn-tab5", SPEC["tab5"])
accuracy_table("diskgnn-tab6", SPEC["tab6"])


def pipelines(profile: Plain) -> Plan:
    """Plan diskgnn with and without its pipeline at each share of memory."""
    (plain,), (sequential,) = entries(profile, ["diskgnn"]), entries(profile, ["diskgnn"], pipeline=False)
    return over_shares(profile, [{**plain, "series": "pipeline"}, {**sequential, "series": "sequential"}])


@figure_of_runs("diskgnn-tab8", pipelines, least=1)
def tab8(group: Group) -> Sheet:
    """Return one row per share of memory, with the paper's speedups; raise NotDrawn without a pair to compare."""
    graphs = ("Friendster", "IGB260M")
    rows: list[Plain] = []
    for memory in sorted({point.x for point in group.points}):
        row: Plain = {"memory": percent(memory)}
        slow, fast = (group.at(how, memory) for how in ("sequential", "pipeline"))
        for cell in (slow, fast):
            row[f"{cell.system} (s)"] = cell.value if cell.value is not None or not cell.record else cell.status
        row["speedup"] = slow.value / fast.value if slow.value is not None and fast.value is not None else None
        for graph in graphs:
            at = str(round(100 * memory))
            before, after = (paper_value("diskgnn-tab8", f"{graph} {one.system}", at) for one in (slow, fast))
            row[f"paper {graph}"] = before / after if before and after else None
        rows.append(row)
    if not any(row["speedup"] for row in rows):
        raise NotDrawn("at no share of memory was diskgnn measured both with and without its pipeline")
    measures = ["sequential (s)", "pipeline (s)", "speedup", *(f"paper {graph}" for graph in graphs)]
    return sheet(rows, {"memory": "", **dict.fromkeys(measures, ".2f")}, group, "memory over the features")
