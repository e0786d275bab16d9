"""Figures drawn to files, each with a small JSON beside it; a figure with unchanged inputs is not drawn again."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.compare.points import NotDrawn
from harness.figures.draw import style
from harness.figures.sources import digest_of_sources
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence
    from harness.figures.base import Drawing, Figure, Sheet


@dataclass(frozen=True)
class Rendered:
    """The result of rendering one figure, its files or the reason for none; kept as `<id>.json` beside the files.

    Attributes:
        files: paths of the files, image or Markdown first.
        inputs: digest of records, studies, experiments and code; a figure with equal inputs is not drawn again.
    """

    id: str
    paper: str
    title: str
    status: Literal["drawn", "not drawn"]
    reason: str = ""
    caption: str = ""
    claims: tuple[str, ...] = ()
    files: list[Path] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    inputs: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain data, file names without their folder."""
        return {**asdict(self), "claims": list(self.claims), "files": [file.name for file in self.files]}


def render(figures: Sequence[Figure], evidence: Evidence, out: Path, *, again: bool = False) -> list[Rendered]:
    """Draw figures as PNG (200 dpi), SVG and CSV, tables as Markdown, CSV and LaTeX; missing runs raise nothing.

    Args:
        again: draw figures with unchanged inputs, too.
    """
    out.mkdir(parents=True, exist_ok=True)
    of_records = _digest_of(evidence)
    return [_render(figure, evidence, out, of_records, again=again) for figure in figures]


def read_rendered(out: Path, id_: str) -> Rendered | None:
    """Return the last result of `render` for a figure, None if there is none or a file is missing."""
    try:
        content = json.loads((out / f"{id_}.json").read_text(encoding="utf-8"))
        content["files"] = [out / name for name in content["files"]]
        content["claims"] = tuple(content["claims"])
        rendered = Rendered(**content)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return rendered if all(file.is_file() for file in rendered.files) else None


def _render(figure: Figure, evidence: Evidence, out: Path, of_records: str, *, again: bool) -> Rendered:
    inputs = hashlib.sha256(f"{of_records} {_source_of(figure)}".encode()).hexdigest()[:16]
    known = None if again else read_rendered(out, figure.id)
    if known is not None and known.inputs == inputs:
        return known
    begin = time.perf_counter()
    made: dict[str, Any] = {"id": figure.id, "paper": figure.paper, "title": figure.title, "claims": figure.claims}
    try:
        drawing = _draw(figure, evidence)
        files = _write(figure, drawing, out)
        made |= {"caption": drawing.caption, "files": files, "runs": list(drawing.runs)}
        rendered = Rendered(**made, status="drawn", inputs=inputs, seconds=time.perf_counter() - begin)
    except (NotDrawn, OutcoreError) as reason:
        for kind in ("png", "svg", "csv", "md", "tex"):
            (out / f"{figure.id}.{kind}").unlink(missing_ok=True)
        rendered = Rendered(**made, status="not drawn", reason=str(reason), inputs=inputs)
    _put(out / f"{figure.id}.json", json.dumps(rendered.to_json(), indent=1) + "\n")
    return rendered


def _draw(figure: Figure, evidence: Evidence) -> Drawing | Sheet:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(style.RC):
        try:
            return figure.draw(evidence)
        except BaseException:
            plt.close("all")
            raise


def _write(figure: Figure, drawing: Drawing | Sheet, out: Path) -> list[Path]:
    from harness.figures.base import Sheet

    kinds = ("md", "csv", "tex") if isinstance(drawing, Sheet) else ("png", "svg", "csv")
    files = [out / f"{figure.id}.{kind}" for kind in kinds]
    if isinstance(drawing, Sheet):
        _put(files[0], markdown(drawing, figure.title))
        _put(files[2], latex(drawing, figure.title))
    else:
        import matplotlib as mpl
        import matplotlib.pyplot as plt

        metadata = {"Title": f"{figure.id}: {figure.title}", "Description": drawing.caption}
        with mpl.rc_context(style.RC):
            drawing.canvas.savefig(files[0], bbox_inches="tight", metadata=metadata)
            drawing.canvas.savefig(files[1], bbox_inches="tight", metadata={**metadata, "Date": None})
        plt.close(drawing.canvas)
    drawing.data.to_csv(files[1] if isinstance(drawing, Sheet) else files[2], index=False)
    return files


def markdown(sheet: Sheet, title: str) -> str:
    """Return the table as GitHub's Markdown, caption below."""
    header, *rows = [[cell.replace("|", "\\|") for cell in row] for row in _cells(sheet)]
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    return "\n".join([f"**{title}**", "", *lines, "", sheet.caption]) + "\n"


_LATEX = {char: f"\\{char}" for char in "&%$#_{}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
_LATEX |= {"≥": r"$\ge$", "≤": r"$\le$", "×": r"$\times$"}


def latex(sheet: Sheet, title: str) -> str:
    """Return the table as LaTeX (package booktabs), caption below."""
    special = str.maketrans(_LATEX)
    head, *rows = [" & ".join(cell.translate(special) for cell in row) + r" \\" for row in _cells(sheet)]
    columns = "l" * min(1, sheet.shown.shape[1]) + "r" * (sheet.shown.shape[1] - 1)
    begin = ["\\begin{table}", "\\centering", f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    caption = f"\\caption{{{title.translate(special)}. {sheet.caption.translate(special)}}}"
    end = ["\\bottomrule", "\\end{tabular}", caption, "\\end{table}"]
    return "\n".join([*begin, head, "\\midrule", *rows, *end]) + "\n"


def _cells(sheet: Sheet) -> list[list[str]]:
    """Return the header and the rows of a table as text; a missing value is a dash."""
    table = sheet.shown.astype(object).where(sheet.shown.notna(), "–").astype(str)
    return [list(map(str, table.columns)), *map(list, table.itertuples(index=False, name=None))]


def _put(path: Path, text: str) -> None:
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def _digest_of(evidence: Evidence) -> str:
    """Return a digest of records by id (they never change once written), studies and planned experiments."""
    ids = [] if evidence.frame.empty else sorted(map(str, evidence.frame["run_id"]))
    studies = [f"{record.study} {record.key} {record.started_at}" for record in evidence.studies]
    planned = [json.dumps(experiment, sort_keys=True, default=str) for experiment in evidence.experiments]
    return hashlib.sha256("\n".join([*ids, *studies, *planned]).encode()).hexdigest()


def _source_of(figure: Figure) -> str:
    """Return a digest of the figure's row of the catalogue, its code with all imports, and the published values."""
    # `draw` may be of a shared module, `needs` of the figure's own; this module writes the files.
    modules = (figure.draw.__module__, figure.needs.__module__, __name__)
    return digest_of_sources(*modules, salt=json.dumps(figure.row, sort_keys=True))
