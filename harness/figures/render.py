"""Figures drawn to files, each with a small JSON beside it; a figure with unchanged
inputs is not drawn again."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy
import pandas as pd

import harness
from harness.compare.verdicts import NotDrawn, with_uncounted
from harness.figures.draw import style
from harness.plan.experiment import cells
from harness.progress import tracked
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence
    from harness.figures.base import Drawing, Figure, Sheet

ROOT = Path(harness.__file__).parent.parent
#: Packages whose sources determine a drawing; systems and native code only make the
#: records.
PACKAGES = ("harness", "workloads")
# Key of a PNG's metadata with the digest of the table behind it.
DATA = "Data"
NOT_ASKED = "no figure was to be drawn (`--figures none`)"
# Reason of a figure whose files show earlier records; they stay where they are.
OUTDATED = (
    "out of date: its files show earlier records or are of earlier code; `outcore "
    "figures {}` draws it again"
)


@dataclass(frozen=True)
class Rendered:
    """The result of rendering one figure, its files or the reason for none; kept as
    `<id>.json` beside the files.

    Attributes:
        finding: sentence on what the values show; empty where they show nothing.
        files: paths of the files, image or Markdown first.
        inputs: digest of records, studies, experiments and code; a figure with equal
            inputs is not drawn again.
        outdated: whether the inputs had changed since the drawing when `render` last
            looked without drawing.
    """

    id: str
    paper: str
    title: str
    status: Literal["drawn", "not drawn"]
    reason: str = ""
    caption: str = ""
    finding: str = ""
    claims: tuple[str, ...] = ()
    files: list[Path] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    inputs: str = ""
    seconds: float = 0.0
    outdated: bool = False

    @property
    def alternative(self) -> str:
        """Text that stands for the image: the finding, else the title, and the
        caption."""
        return f"{self.finding or self.title}. {self.caption}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, file names without their folder."""
        return {
            **asdict(self),
            "claims": list(self.claims),
            "files": [file.name for file in self.files],
        }


def render(
    figures: Sequence[Figure],
    evidence: Evidence,
    out: Path,
    *,
    again: bool = False,
    draw: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Rendered]:
    """Draw figures as PNG (200 dpi), SVG and CSV, tables as Markdown, CSV and LaTeX;
    missing runs raise nothing.

    Where it takes longer, other processes draw, too, so that every core has one.

    Args:
        again: draw figures with unchanged inputs, too.
        draw: whether to draw; if not, figures whose inputs have changed keep their
            files, are marked as out of date in their JSON and are returned as not
            drawn.
        progress: called with the figures' progress.
    """
    out.mkdir(parents=True, exist_ok=True)
    of_all = f"{_digest_of(evidence)} {digest_of_sources()}"
    inputs = {figure.id: _inputs(figure, of_all) for figure in figures}
    stale = [
        figure
        for figure in figures
        if draw and (again or _known(figure.id, out, inputs[figure.id]) is None)
    ]
    workers = min(len(os.sched_getaffinity(0)), len(stale) // FIGURES_A_WORKER)
    if workers > 1 and _draw_beside(
        [(figure.id, inputs[figure.id]) for figure in stale],
        workers,
        evidence,
        out,
        progress,
    ):
        again = False
    every = tracked(
        progress if workers <= 1 else lambda text: None,
        figures,
        "drawing",
        "figures",
        attrgetter("id"),
    )
    return [
        _render(figure, evidence, out, inputs[figure.id], again=again, draw=draw)
        for figure in every
    ]


def _draw_beside(
    tasks: Sequence[tuple[str, str]],
    workers: int,
    evidence: Evidence,
    out: Path,
    progress: Callable[[str], None],
) -> bool:
    """Draw figures (id, digest of its inputs) in processes beside this one; return
    whether they drew all of them."""
    context = multiprocessing.get_context("spawn")
    with tempfile.NamedTemporaryFile(dir=out, prefix=".evidence-") as file:
        # In a file: a process that dies while it starts would never read a large
        # argument from its pipe.
        pickle.dump(evidence, file)
        file.flush()
        try:
            with ProcessPoolExecutor(
                workers, context, _begin_worker, (file.name, out)
            ) as pool:
                drawn = pool.map(_draw_in_worker, tasks)
                for _ in tracked(progress, tasks, "drawing", "figures", itemgetter(0)):
                    next(drawn)
        except BrokenProcessPool:  # one was killed: the rest is left to this process
            return False
    return True


# A worker's imports take as long as some figures.
FIGURES_A_WORKER = 8
_WORK: list[Any] = []


def _begin_worker(evidence: str, out: Path) -> None:
    """Read the evidence (file of its pickle), which every task of this process
    needs."""
    _WORK[:] = [pickle.loads(Path(evidence).read_bytes()), out]


def _draw_in_worker(task: tuple[str, str]) -> None:
    """Draw one figure into its files: id, and digest of its inputs."""
    from harness.figures.base import catalogue

    evidence, out = _WORK
    figure, inputs = task
    _render(catalogue()[figure], evidence, out, inputs, again=True, draw=True)


def read_rendered(out: Path, id_: str) -> Rendered | None:
    """Return the last result of `render` for a figure, None if there is none or a file
    is missing."""
    try:
        content = json.loads((out / f"{id_}.json").read_text(encoding="utf-8"))
        content["files"] = [out / name for name in content["files"]]
        content["claims"] = tuple(content["claims"])
        rendered = Rendered(**content)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return rendered if all(file.is_file() for file in rendered.files) else None


def _inputs(figure: Figure, of_all: str) -> str:
    """Return a digest of what determines a figure: `of_all`, records and sources, and
    its row of the catalogue."""
    row = json.dumps(figure.row, sort_keys=True)
    return hashlib.sha256(f"{of_all} {figure.id} {row}".encode()).hexdigest()[:16]


def _known(id_: str, out: Path, inputs: str) -> Rendered | None:
    """Return the last result for a figure where its inputs are the same."""
    known = read_rendered(out, id_)
    return known if known is not None and known.inputs == inputs else None


def _render(
    figure: Figure,
    evidence: Evidence,
    out: Path,
    inputs: str,
    *,
    again: bool,
    draw: bool,
) -> Rendered:
    if not again and (known := _known(figure.id, out, inputs)) is not None:
        return _marked_as(known, out, outdated=False)
    if not draw:
        return _left_as_it_is(figure, out)
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    begin = time.perf_counter()
    made: dict[str, Any] = {
        "id": figure.id,
        "paper": figure.paper,
        "title": figure.title,
        "claims": figure.claims,
    }
    try:
        with mpl.rc_context(fname=style.SHEET):
            drawing = _with_origin(figure.draw(evidence), evidence.origin)
            files = _write(figure, drawing, out)
        made |= {
            "caption": drawing.caption,
            "finding": drawing.finding,
            "files": files,
            "runs": list(drawing.runs),
        }
        rendered = Rendered(
            **made, status="drawn", inputs=inputs, seconds=time.perf_counter() - begin
        )
    except (NotDrawn, OutcoreError) as reason:
        _remove(figure, out)
        rendered = Rendered(
            **made,
            status="not drawn",
            reason=_with_uncounted(reason, figure, evidence),
            inputs=inputs,
        )
    finally:
        plt.close("all")
    _put(out / f"{figure.id}.json", json.dumps(rendered.to_json(), indent=1) + "\n")
    return rendered


def _with_uncounted(reason: Exception, figure: Figure, evidence: Evidence) -> str:
    """Return why a figure was not drawn, with the number of its runs that do not
    count."""
    if (
        not isinstance(reason, NotDrawn)
        or evidence.runs.empty
        or evidence.runs["counts"].all()
    ):
        return str(reason)
    found: dict[Any, str] = {}
    for plan in evidence.experiments:
        # A user's experiment may lack the settings that the figure varies.
        with suppress(OutcoreError, LookupError):
            planned = [
                cell
                for experiment in figure.experiments(plan)
                for cell in cells(experiment)
            ]
            for cell in planned:
                uncounted = evidence.runs_of(cell).query("not counts")
                found |= uncounted.set_index("run_id")["verdict"].to_dict()
    return with_uncounted(reason, found.values())


def _left_as_it_is(figure: Figure, out: Path) -> Rendered:
    """Return the result for a figure that was not to be drawn, and mark the files of an
    earlier drawing."""
    absent = Rendered(
        figure.id,
        figure.paper,
        figure.title,
        "not drawn",
        NOT_ASKED,
        claims=figure.claims,
    )
    former = read_rendered(out, figure.id)
    if former is None or former.status != "drawn":
        return absent
    _marked_as(former, out, outdated=True)
    return replace(absent, reason=OUTDATED.format(figure.id), outdated=True)


def _marked_as(rendered: Rendered, out: Path, *, outdated: bool) -> Rendered:
    """Return a result with its mark, which is written where it changes."""
    if rendered.outdated == outdated:
        return rendered
    marked = replace(rendered, outdated=outdated)
    _put(out / f"{marked.id}.json", json.dumps(marked.to_json(), indent=1) + "\n")
    return marked


def _with_origin(drawing: Drawing | Sheet, origin: str) -> Drawing | Sheet:
    """Return a drawing whose caption begins with the machine of its runs; one's own
    machine is not named."""
    from harness.figures.base import Sheet

    if not origin:
        return drawing
    if not isinstance(drawing, Sheet):
        written = drawing.canvas.texts[-1]  # the caption, which `drawn` writes last
        written.set_text(f"{origin}:\n{written.get_text()}")
    return replace(drawing, caption=f"{origin}: {drawing.caption}")


def data_digest(table: pd.DataFrame) -> str:
    """Return a digest of the table behind a drawing; numbers count by six digits, since
    libraries round differently."""
    text = table.to_csv(index=False, float_format="%.6g")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _remove(figure: Figure, out: Path) -> None:
    for kind in ("png", "svg", "csv", "md", "tex"):
        (out / f"{figure.id}.{kind}").unlink(missing_ok=True)


def _write(figure: Figure, drawing: Drawing | Sheet, out: Path) -> list[Path]:
    from harness.figures.base import Sheet

    kinds = (
        ("md", "csv", "tex") if isinstance(drawing, Sheet) else ("png", "svg", "csv")
    )
    files = [out / f"{figure.id}.{kind}" for kind in kinds]
    if isinstance(drawing, Sheet):
        _put(files[0], markdown(drawing, figure.title))
        _put(files[2], latex(drawing, figure.title))
    else:
        description = (
            f"{drawing.finding}. {drawing.caption}"
            if drawing.finding
            else drawing.caption
        )
        metadata = {"Title": f"{figure.id}: {figure.title}", "Description": description}
        own = {**metadata, DATA: data_digest(drawing.data)}
        drawing.canvas.savefig(files[0], bbox_inches="tight", metadata=own)
        drawing.canvas.set_layout_engine("none")  # the layout stays as it was computed
        drawing.canvas.savefig(
            files[1], bbox_inches="tight", metadata={**metadata, "Date": None}
        )
    drawing.data.to_csv(out / f"{figure.id}.csv", index=False)
    return files


def markdown(sheet: Sheet, title: str) -> str:
    """Return the table as GitHub's Markdown, finding above and caption below."""
    texts = _texts(sheet, {"|": "\\|"})
    rows = [texts.columns, ["---"] * texts.shape[1], *texts.to_numpy()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    above = [f"**{title}**", ""]
    if sheet.finding:
        above += [f"{sheet.finding}.", ""]
    return "\n".join([*above, *lines, "", sheet.caption]) + "\n"


_LATEX = {char: f"\\{char}" for char in "&%$#_{}"}
_LATEX |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
}
_LATEX |= {"≥": r"$\ge$", "≤": r"$\le$", "×": r"$\times$"}


def latex(sheet: Sheet, title: str) -> str:
    """Return the table as LaTeX (package booktabs), caption below."""
    texts = _texts(sheet, _LATEX)
    columns = "l" + "r" * (texts.shape[1] - 1)
    tabular = texts.to_latex(index=False, column_format=columns)
    special = str.maketrans(_LATEX)
    caption = f"{title}. {sheet.caption}".translate(special)
    return (
        f"\\begin{{table}}\n\\centering\n{tabular}\\caption{{{caption}}}\n"
        f"\\end{{table}}\n"
    )


def _texts(sheet: Sheet, escapes: dict[str, Any]) -> pd.DataFrame:
    """Return a table as text, special characters escaped, headers too; a missing value
    is a dash."""
    special = str.maketrans(escapes)
    texts = sheet.shown.astype(object).fillna("–").astype(str)
    return texts.map(lambda text: text.translate(special)).rename(
        columns=lambda name: str(name).translate(special)
    )


def _put(path: Path, text: str) -> None:
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def _digest_of(evidence: Evidence) -> str:
    """Return a digest of records by id (they never change once written), studies and
    planned experiments."""
    ids = [] if evidence.runs.empty else sorted(map(str, evidence.runs["run_id"]))
    studies = [
        f"{record.study} {record.key} {record.started_at}"
        for record in evidence.studies
    ]
    planned = [
        json.dumps(experiment, sort_keys=True, default=str)
        for experiment in evidence.experiments
    ]
    foreign = [record.key for record in evidence.foreign]
    return hashlib.sha256(
        "\n".join([evidence.origin, *ids, *studies, *planned, *foreign]).encode()
    ).hexdigest()


def digest_of_sources(root: Path = ROOT) -> str:
    """Return a digest of the sources and published values that determine drawings, and
    of the libraries' versions."""
    digest = hashlib.sha256()
    for library in (mpl, numpy, pd):
        digest.update(f"{library.__name__} {library.__version__}\n".encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".mplstyle", ".yaml", ".csv"):
                digest.update(
                    f"{path.relative_to(root)}\0".encode() + path.read_bytes()
                )
    return digest.hexdigest()
