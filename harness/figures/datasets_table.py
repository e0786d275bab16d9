"""Dataset tables of four papers: the paper's datasets beside those of our runs and
studies of that paper."""

from __future__ import annotations

from functools import partial
from typing import get_args

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import GB, Sheet, figure, paper_frame, sheet
from harness.figures.findings import span
from harness.figures.grids import dataset_of, gallery
from harness.figures.pagraph.grid import setting
from harness.records.record import ORIGIN
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict
from workloads.kronecker.spec import Kind
from workloads.units import format_count, row_bytes

#: Systems of each paper's table, by the figure's id: the datasets of their runs are
#: listed.
TABLES = {
    "gnndrive-tab1": ["pyg+", "ginex", "gnndrive", "mariusgnn"],
    "diskgnn-tab2": ["diskgnn", "dgl-ondisk", "ginex", "mariusgnn"],
    "pagraph-tab2": ["dgl", "pagraph", "dgl+pp", "pagraph+pp", "dgl+cache"],
    "tiering-tab1": ["uva", "data-tiering"],
}
PAGRAPH = "pagraph-tab2"
#: Tables whose papers' text repeats only a part of them.
IN_PART = ("diskgnn-tab2", "tiering-tab1")
FORMATS = {
    "dataset": "",
    "nodes": "count",
    "edges": "count",
    "degree": ".1f",
    "dim": ".0f",
    "classes": ".0f",
    "topology": "GB",
    "features": "GB",
    "total": "GB",
    "train (%)": ".1f",
    "source": "",
    "origin": "",
}
#: Names in records and studies, and their columns.
NAMES = {
    "name": "dataset",
    "num_nodes": "nodes",
    "num_edges": "edges",
    "num_classes": "classes",
    "topology_bytes": "topology",
    "total_bytes": "total",
}
# First word of an origin, and its words in the caption.
GENERATED = {"generated": "generated", "imported": "imported"}
UNKNOWN = "of an origin that no record shows"


def our_datasets(evidence: Evidence, table: str) -> pd.DataFrame:
    """Return the datasets of runs, each with the newest `run`, and those of studies,
    which know more of them."""
    rows: dict[str, JsonDict] = {}
    for record in evidence.records:
        if record["system"] in TABLES[table]:
            data = record["config"]["dataset"]
            origin = (record.get("notes") or {}).get(ORIGIN, "unknown")
            rows[data["fingerprint"]] = {
                **data,
                "origin": origin,
                "run": record["run_id"],
            }
    for study in evidence.studies:
        dataset = study.dataset
        if study.study != "dataset-facts" or dataset is None:
            continue
        known = rows.get(dataset.fingerprint, {})
        # Without a run, a dataset is of pagraph's table if it has pagraph's split, else
        # of the others.
        if known or dataset.name.endswith("-t65") == (table == PAGRAPH):
            # Studies of older code do not record an origin: it follows from the
            # recipe's kind.
            kind = study.result.get("kind")
            origin = f"generated ({kind})" if kind in get_args(Kind) else "unknown"
            facts = {"origin": origin, **study.result}
            rows[dataset.fingerprint] = {
                "run": None,
                **known,
                **dataset.model_dump(),
                **facts,
            }
    if not rows:
        raise NotDrawn(f"no run or study of a dataset of {table} yet")
    found = pd.DataFrame(rows.values()).rename(columns=NAMES)
    widths = map(row_bytes, found.dim, found.dtype)
    found["features"] = found.nodes * list(widths)
    found["degree"] = found.edges / found.nodes
    trained = found.train_nodes.replace(0, pd.NA)
    found["train (%)"] = 100.0 * trained / found.nodes
    return found.assign(source="ours")


def origins(rows: pd.DataFrame) -> str:
    """Return a sentence on where our datasets come from."""
    words = rows.origin.str.split().str[0].map(GENERATED).fillna(UNKNOWN)
    names = rows.dataset.groupby(words, sort=False).agg(", ".join)
    if len(names) == 1:
        return f"Ours are {names.index[0]}"
    return "Ours: " + "; ".join(names + " " + names.index)


def facts(table: str, profile: JsonDict) -> list[StudyNeed]:
    """Return the study of the dataset behind the paper's figures."""
    short = setting(profile) if table == PAGRAPH else gallery(profile)
    name, recipe = dataset_of(short)
    return [StudyNeed("dataset-facts", {"dataset": name}, {name: recipe})]


def draw(table: str, evidence: Evidence) -> Sheet:
    """Return a paper's table; raise NotDrawn without a dataset of ours."""
    found = our_datasets(evidence, table)
    ours = found.sort_values(["nodes", "dim", "dataset"])
    paper = paper_frame(table).reindex(columns=[*FORMATS, "train"])
    sizes = ["topology", "features", "total"]
    paper[sizes] = paper[sizes] * GB
    paper["degree"] = paper.edges / paper.nodes
    paper["train (%)"] = paper.train
    theirs = paper.assign(dataset=paper.index, source="paper")
    rows = pd.concat([ours, theirs])[list(FORMATS)]
    caption = (
        "Degree: edges a node; topology: index pointers and neighbour lists; total: "
        f"all files. {origins(ours)}. The paper's are as printed"
    )
    caption += ", as far as its text repeats them." if table in IN_PART else "."
    return sheet(
        rows, FORMATS, caption, runs=list(found.run.dropna()), finding=_sizes(ours)
    )


def _sizes(ours: pd.DataFrame) -> str:
    """Return the sentence on nodes, edges a node and bytes of the features of our
    datasets."""
    nodes = dict.fromkeys(
        format_count(int(count)) for count in (ours.nodes.min(), ours.nodes.max())
    )
    subject = "Our dataset has" if len(ours) == 1 else f"Our {len(ours)} datasets have"
    features = span(ours.features.astype(float) / GB)
    return (
        f"{subject} {' to '.join(nodes)} nodes, {span(ours.degree)} edges a node and "
        f"{features} GB of features"
    )


for _table in TABLES:
    figure(_table, studies=partial(facts, _table))(partial(draw, _table))
