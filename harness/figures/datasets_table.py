"""Dataset tables of four papers: the paper's datasets beside those of our runs and studies of that paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Sheet, figure, paper_rows
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.grids import gallery
from harness.figures.pagraph.grid import FAMILY, setting
from harness.figures.pagraph.tables import GB, gigabytes
from harness.studies.base import StudyNeed
from workloads.units import format_count, row_bytes


@dataclass(frozen=True)
class Table:
    """One paper's table.

    Attributes:
        systems: systems whose runs' datasets are listed beside the datasets of the studies.
        note: sentence for the caption on gaps in the paper's table.
    """

    id: str
    paper: str
    systems: Sequence[str]
    note: str = ""


TABLES = [
    Table("gnndrive-tab1", "gnndrive", ["pyg+", "ginex", "gnndrive", "mariusgnn"]),
    Table(
        "diskgnn-tab2",
        "diskgnn",
        ["diskgnn", "dgl-ondisk", "ginex", "mariusgnn"],
        "of the paper's table only what its text repeats",
    ),
    Table("pagraph-tab2", "pagraph", [*FAMILY, "dgl+cache"]),
    Table("tiering-tab1", "data-tiering", ["uva", "data-tiering"], "of the paper's table only what its text repeats"),
]


def studies_of(table: Table) -> Callable[[Plain], list[StudyNeed]]:
    """Return the `studies` of a table: the facts of the profile's dataset behind the paper's figures."""

    def studies(profile: Plain) -> list[StudyNeed]:
        short = setting(profile) if table.paper == "pagraph" else gallery(profile)
        name = short["run"]["dataset"]
        return [StudyNeed("dataset-facts", {"dataset": name}, {name: short["datasets"][name]})]

    return studies


def of_records(evidence: Evidence, table: Table) -> list[Plain]:
    """Return a row for each dataset: all facts if there is a study, else those in a run's record."""
    rows: dict[str, Plain] = {}
    own = {
        record["config"]["dataset"]["fingerprint"]: record["config"]["dataset"]
        for record in ([] if evidence.frame.empty else evidence.frame["record"])
        if record["system"] in table.systems
    }
    for fingerprint, data in own.items():
        rows[fingerprint] = {
            "dataset": data["name"],
            "nodes": data["num_nodes"],
            "edges": data["num_edges"],
            "degree": data["num_edges"] / data["num_nodes"],
            "dim": data["dim"],
            "classes": data["num_classes"] or None,
            "features": data["num_nodes"] * row_bytes(data["dim"], data["dtype"]),
            "train (%)": 100.0 * data["train_nodes"] / data["num_nodes"] if data["train_nodes"] else None,
        }
    for study in evidence.studies:
        data = study.dataset
        if study.study != "dataset-facts" or data is None:
            continue
        # Without a run, a dataset is of pagraph's table if it has pagraph's split (`-t65`), else of the others.
        if data.fingerprint not in own and (table.paper == "pagraph") != data.name.endswith("-t65"):
            continue
        found = study.result
        rows[data.fingerprint] = {
            "dataset": data.name,
            "nodes": found["num_nodes"],
            "edges": found["num_edges"],
            "degree": found["mean_degree"],
            "dim": found["dim"],
            "classes": found["num_classes"],
            "topology": found["topology_bytes"],
            "features": found["feature_bytes"],
            "total": found["total_bytes"],
            "train (%)": 100.0 * found["train_share"],
        }
    return [{**row, "source": "ours"} for row in sorted(rows.values(), key=lambda row: (row["nodes"], row["dim"]))]


#: Columns of the table, and the unit of the published values in them.
_KEYS = {"nodes": 1, "edges": 1, "dim": 1, "classes": 1, "train": 1, "topology": GB, "features": GB, "total": GB}


def of_paper(table: Table) -> list[Plain]:
    """Return the paper's rows, as far as their numbers are published."""
    rows: dict[str, Plain] = {}
    for entry in paper_rows(table.id):
        row = rows.setdefault(entry["series"], {"dataset": entry["series"], "source": "paper"})
        key = str(entry["x"])
        row["train (%)" if key == "train" else key] = float(entry["value"]) * _KEYS[key]
    for row in rows.values():
        if "nodes" in row and "edges" in row:
            row["degree"] = row["edges"] / row["nodes"]
    return list(rows.values())


def add_table(table: Table) -> None:
    """Add one paper's table to the catalogue."""

    @figure(table.id, studies=studies_of(table))
    def draw(evidence: Evidence) -> Sheet:
        ours = of_records(evidence, table)
        if not ours:
            raise NotDrawn(f"no run or study of a dataset of {table.id} yet")
        columns: dict[str, Formatter] = {"dataset": "", "nodes": format_count, "edges": format_count, "degree": ".1f"}
        columns |= {"dim": ".0f", "classes": ".0f", **dict.fromkeys(["topology", "features", "total"], gigabytes)}
        columns |= {"train (%)": ".1f", "source": ""}
        text = (
            "Degree: edges a node; topology: index pointers and neighbour lists; total: all files. Ours are generated; "
            "the paper's are as printed, and what it does not print is left open."
        )
        text += f" {table.note[0].upper()}{table.note[1:]}." if table.note else ""
        rows = pd.DataFrame(ours + of_paper(table)).reindex(columns=list(columns))
        records: Iterable[Plain] = [] if evidence.frame.empty else evidence.frame["record"]
        # The newest run of each dataset.
        newest = {r["config"]["dataset"]["fingerprint"]: r["run_id"] for r in records if r["system"] in table.systems}
        return sheet(rows, columns, text, runs=list(newest.values()))


for _table in TABLES:
    add_table(_table)
