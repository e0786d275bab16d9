"""Dataset tables of four papers: the paper's datasets beside those of our runs and studies of that paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Formatter, Sheet, figure, paper_rows, sheet
from harness.figures.grids import gallery
from harness.figures.pagraph.epochs import GB, gigabytes
from harness.figures.pagraph.grid import FAMILY, setting
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


def of_runs(evidence: Evidence, table: Table) -> dict[str, Plain]:
    """Return the newest run of each dataset that the table's systems ran on, by the dataset's fingerprint."""
    records: Iterable[Plain] = [] if evidence.frame.empty else evidence.frame["record"]
    return {r["config"]["dataset"]["fingerprint"]: r for r in records if r["system"] in table.systems}


#: Columns of the table and their keys in the result of the study `dataset-facts`.
_FACTS = {
    "nodes": "num_nodes",
    "edges": "num_edges",
    "degree": "mean_degree",
    "dim": "dim",
    "classes": "num_classes",
    "topology": "topology_bytes",
    "features": "feature_bytes",
    "total": "total_bytes",
}
#: Columns whose published values are in GB.
_SIZES = ("topology", "features", "total")


def of_records(evidence: Evidence, table: Table) -> list[Plain]:
    """Return a row for each dataset: all facts if there is a study, else those in a run's record."""
    rows: dict[str, Plain] = {}
    own = {fingerprint: record["config"]["dataset"] for fingerprint, record in of_runs(evidence, table).items()}
    for fingerprint, data in own.items():
        nodes, edges = data["num_nodes"], data["num_edges"]
        row = {"dataset": data["name"], "nodes": nodes, "edges": edges, "degree": edges / nodes, "dim": data["dim"]}
        row |= {"classes": data["num_classes"] or None, "features": nodes * row_bytes(data["dim"], data["dtype"])}
        row["train (%)"] = 100.0 * data["train_nodes"] / nodes if data["train_nodes"] else None
        rows[fingerprint] = row
    for study in evidence.studies:
        facts = study.dataset
        if study.study != "dataset-facts" or facts is None:
            continue
        # Without a run, a dataset is of pagraph's table if it has pagraph's split (`-t65`), else of the others.
        if facts.fingerprint in own or (table.paper == "pagraph") == facts.name.endswith("-t65"):
            row = {"dataset": facts.name, **{column: study.result[key] for column, key in _FACTS.items()}}
            rows[facts.fingerprint] = {**row, "train (%)": 100.0 * study.result["train_share"]}
    return [{**row, "source": "ours"} for row in sorted(rows.values(), key=lambda row: (row["nodes"], row["dim"]))]


def of_paper(table: Table) -> list[Plain]:
    """Return the paper's rows, as far as their numbers are published."""
    rows: dict[str, Plain] = {}
    for entry in paper_rows(table.id):
        row = rows.setdefault(entry["series"], {"dataset": entry["series"], "source": "paper"})
        key = "train (%)" if entry["x"] == "train" else str(entry["x"])
        row[key] = float(entry["value"]) * (GB if key in _SIZES else 1)
    for row in rows.values():
        if "nodes" in row and "edges" in row:
            row["degree"] = row["edges"] / row["nodes"]
    return list(rows.values())


def add_table(table: Table) -> None:
    """Add one paper's table to the catalogue; its study has the facts of the dataset behind the paper's figures."""

    def facts(profile: Plain) -> list[StudyNeed]:
        short = setting(profile) if table.paper == "pagraph" else gallery(profile)
        name = short["run"]["dataset"]
        return [StudyNeed("dataset-facts", {"dataset": name}, {name: short["datasets"][name]})]

    @figure(table.id, studies=facts)
    def draw(evidence: Evidence) -> Sheet:
        ours = of_records(evidence, table)
        if not ours:
            raise NotDrawn(f"no run or study of a dataset of {table.id} yet")
        columns: dict[str, Formatter] = {"dataset": "", "nodes": format_count, "edges": format_count, "degree": ".1f"}
        columns |= {
            "dim": ".0f",
            "classes": ".0f",
            **dict.fromkeys(_SIZES, gigabytes),
            "train (%)": ".1f",
            "source": "",
        }
        text = (
            "Degree: edges a node; topology: index pointers and neighbour lists; total: all files. Ours are generated; "
            "the paper's are as printed, and what it does not print is left open."
        )
        text += f" {table.note[0].upper()}{table.note[1:]}." if table.note else ""
        rows = pd.DataFrame(ours + of_paper(table)).reindex(columns=list(columns))
        return sheet(rows, columns, text, runs=[record["run_id"] for record in of_runs(evidence, table).values()])


for _table in TABLES:
    add_table(_table)
