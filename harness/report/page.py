"""The HTML page: template, style, scripts and the table of runs; pictures and pages of
runs come from the folder beside it, and nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.claims.judge import measured_text, published_text
from harness.figures.draw import style
from harness.judge import rules
from harness.judge.page import linked, reason_of
from harness.report.gallery import GalleryEntry
from harness.report.runs import compact
from harness.results.reference import Reference
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("core.js", "lists.js", "explore.js", "learning.js", "run.js")
#: Figure under the headline: which system is fastest, and from how many epochs on.
OPENING = "outcore-training"
#: Tone and mark of a claim's verdict: the mark serves readers who cannot see the
#: colour.
TONES = {
    "reproduced": "good",
    "direction only": "fair",
    "not reproduced": "bad",
    "emulated": "stated",
    "not run": "none",
}
MARKS = {
    "reproduced": "✓",
    "direction only": "~",
    "not reproduced": "✗",
    "emulated": "≈",
    "not run": "–",
}


def page(
    *,
    token: str,
    files: str,
    reference: Reference | None,
    entries: Sequence[GalleryEntry],
    runs: JsonDict,
    first: JsonDict,
    **shown: Any,
) -> str:
    """Render the report as one HTML document; every value is escaped, and only the
    report's own scripts can run.

    Args:
        token: random text of this writing, which marks the report's own scripts.
        files: address of the folder beside the page.
        reference: manifest of reference results, which names the page.
        entries, runs: the gallery, and the table of all runs.
        first: filters that show the headline's setting.
        shown: further values of the template: `headline`, `board`, `counts` of runs,
            `unreadable` (bad records), `foreign` (table of measurements by other code,
            or None), `written` (time).
    """
    import jinja2
    from markupsafe import Markup, escape

    looks = _looks(runs)
    title = reference.label if reference else "Outcore report"
    data = {
        "title": title,
        "files": files,
        "looks": looks,
        "stage_colors": style.STAGE_COLORS,
        "first": first,
        "runs": runs,
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        color=lambda system: looks[str(system).split(" (+")[0]]["color"],
        tone=lambda verdict: TONES.get(verdict, "none"),
        mark=lambda verdict: MARKS.get(verdict, "·"),
        published=published_text,
        measured=measured_text,
        bytes=lambda size: format_bytes(size) if size else "unknown",
        reason=reason_of,
        ruled=lambda text: Markup(_ruled(str(escape(text)))),
    )
    return environment.get_template("report.html").render(
        title=title,
        reference=reference,
        entries=entries,
        token=token,
        files=files,
        policy=policy(token),
        css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),  # ours
        scripts=[Markup(script) for script in own_scripts()],
        data=Markup(embedded(data)),
        rules=rules(),
        opening=OPENING,
        **shown,
    )


def _looks(runs: JsonDict) -> JsonDict:
    """Return plotly's colour and symbol of each system of the table of runs, and of all
    that the figures know."""
    place = [*runs["columns"], "system"].index(
        "system"
    )  # without a run there is no column
    texts = runs["texts"]
    systems = style.ordered(
        [*style.LOOKS, *(texts[row[place]] for row in runs["rows"])]
    )
    look_of = style.system_looks(systems)
    return {
        name: {"color": look_of(name).color, "symbol": look_of(name).symbol}
        for name in systems
    }


def _ruled(html: str) -> str:
    """Link the numbers of rules in escaped text to the page's own entries, and set text
    in backticks as code."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", html)
    return linked(code, lambda text, number: f'<a href="#rule-{number}">{text}</a>')


def own_scripts() -> list[str]:
    """Return the report's scripts, in loading order."""
    scripts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS]
    for script in scripts:
        # Only these two strings have a meaning inside <script>.
        assert "</script" not in script.lower()
        assert "<!--" not in script
    return scripts


def policy(token: str) -> str:
    """Return a content security policy that forbids every other address, and all
    scripts without the token."""
    return (
        f"default-src 'none'; script-src 'nonce-{token}'; style-src 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src data:; connect-src 'none'; base-uri "
        "'none'; form-action 'none'"
    )


def embedded(value: Any) -> str:
    """Return plain data as JSON that may stand inside <script>: it has no `<`."""
    return (
        compact(value)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
    )
