"""Dataset tables of four papers: the paper's datasets beside those of our runs and studies of that paper."""

from __future__ import annotations

from typing import get_args

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import GB, Sheet, figure, paper_table, sheet, specs
from harness.figures.grids import dataset_of, gallery
from harness.figures.pagraph.grid import setting
from harness.records.record import ORIGIN
from harness.studies.base import StudyNeed
from workloads.kronecker.spec import Kind
from workloads.units import row_bytes

SPEC = specs(__file__)
#: Origin of a dataset whose records show none.
UNKNOWN = "unknown"
# First word of an origin -> words of the caption.
_ORIGINS = {"generated": "generated", "imported": "imported", UNKNOWN: "of an origin that no record shows"}
#: Each paper's table by the figure's id.
TABLES: dict[str, Plain] = SPEC["tables"]


def of_runs(evidence: Evidence, table: Plain) -> dict[str, Plain]:
    """Return the newest run of each dataset that the table's systems ran on, by the dataset's fingerprint."""
    runs = [record for record in evidence.records if record["system"] in table["systems"]]
    return {record["config"]["dataset"]["fingerprint"]: record for record in runs}


def of_records(evidence: Evidence, table: Plain) -> list[Plain]:
    """Return a row for each dataset: all facts if there is a study, else those in a run's record."""
    rows: dict[str, Plain] = {}
    runs = of_runs(evidence, table)
    own = {fingerprint: record["config"]["dataset"] for fingerprint, record in runs.items()}
    notes_of = {fingerprint: record.get("notes") or {} for fingerprint, record in runs.items()}
    for fingerprint, data in own.items():
        nodes, edges = data["num_nodes"], data["num_edges"]
        row = {"dataset": data["name"], "nodes": nodes, "edges": edges, "degree": edges / nodes, "dim": data["dim"]}
        row |= {"classes": data["num_classes"] or None, "features": nodes * row_bytes(data["dim"], data["dtype"])}
        row["train (%)"] = 100.0 * data["train_nodes"] / nodes if data["train_nodes"] else None
        rows[fingerprint] = row | {"origin": notes_of[fingerprint].get(ORIGIN, UNKNOWN)}
    for study in evidence.studies:
        facts = study.dataset
        if study.study != "dataset-facts" or facts is None:
            continue
        # Without a run, a dataset is of pagraph's table if it has pagraph's split (`-t65`), else of the others.
        if facts.fingerprint in own or (table["paper"] == "pagraph") == facts.name.endswith("-t65"):
            row = {"dataset": facts.name, **{column: study.result[key] for column, key in SPEC["facts"].items()}}
            row |= {"train (%)": 100.0 * study.result["train_share"], "origin": _origin(study.result)}
            rows[facts.fingerprint] = row
    return [{**row, "source": "ours"} for row in sorted(rows.values(), key=lambda row: (row["nodes"], row["dim"]))]


def _origin(facts: Plain) -> str:
    """Return the origin of a study's dataset; of a record of older code by its recipe's kind."""
    kind = str(facts.get("kind"))
    known = f"generated ({kind})" if kind in get_args(Kind) else UNKNOWN
    return str(facts.get("origin", known))


def origins(rows: list[Plain]) -> str:
    """Return a sentence on where the datasets of our rows come from."""
    found: dict[str, list[str]] = {}
    for row in rows:
        origin = str(row["origin"]).partition(" ")[0]
        found.setdefault(origin if origin in _ORIGINS else UNKNOWN, []).append(row["dataset"])
    if len(found) == 1:
        return f"Ours are {_ORIGINS[next(iter(found))]}; "
    parts = [f"{', '.join(names)} {_ORIGINS[origin]}" for origin, names in found.items()]
    return f"Ours: {'; '.join(parts)}; "


def of_paper(id_: str) -> list[Plain]:
    """Return the paper's rows, as far as their numbers are published."""
    rows = []
    for name, known in paper_table(id_).items():
        row = {key: value * (GB if SPEC["columns"].get(key) == "GB" else 1) for key, value in known.items()}
        degree = {"degree": row["edges"] / row["nodes"]} if {"nodes", "edges"} <= set(row) else {}
        rows.append({**row, **degree, "dataset": name, "source": "paper", "train (%)": row.get("train")})
    return rows


def add_table(id_: str, table: Plain) -> None:
    """Add one paper's table to the catalogue; its study has the facts of the dataset behind the paper's figures."""

    def facts(profile: Plain) -> list[StudyNeed]:
        short = setting(profile) if table["paper"] == "pagraph" else gallery(profile)
        name, recipe = dataset_of(short)
        return [StudyNeed("dataset-facts", {"dataset": name}, {name: recipe})]

    @figure(id_, studies=facts)
    def draw(evidence: Evidence) -> Sheet:
        ours = of_records(evidence, table)
        if not ours:
            raise NotDrawn(f"no run or study of a dataset of {id_} yet")
        rows = pd.DataFrame(ours + of_paper(id_)).reindex(columns=list(SPEC["columns"]))
        runs = [record["run_id"] for record in of_runs(evidence, table).values()]
        caption = SPEC["caption"].format(ours=origins(ours)) + table.get("note", "")
        return sheet(rows, SPEC["columns"], caption, runs=runs)


for _id, _table in TABLES.items():
    add_table(_id, _table)
