"""`outcore systems`: every system, its paper, devices, whether it is faithful, its
options, and its data path; environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from harness.cli.common import Call, OnResults, Verbs
from harness.cli.table import Wide, print_lines, print_table
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.records.record import Record
    from systems.interface import PartUse

_LINE = 100  # characters of an installer's line that are shown


class _Listing(TyperGroup):
    """A group whose first verb may be left out: `outcore systems gnndrive` lists one
    system."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` unless a verb or help is asked for."""
        named = bool(args) and (
            args[0] in self.commands or args[0] in ctx.help_option_names
        )
        return super().parse_args(ctx, args if named else ["list", *args])


app = Verbs(
    help="List the systems, or make the environment of a foreign one.", cls=_Listing
)


@app.verb
def list_(
    table: Wide,
    call: Call,
    name: Annotated[
        str | None,
        typer.Argument(help="one system, module:Class or env:NAME; all without it"),
    ] = None,
) -> None:
    """List the systems, or one with its options and their defaults; `list` may be left
    out.

    Examples:
        outcore systems list
        outcore systems list env:graphbolt
    """
    from harness.foreign import ENV
    from harness.foreign.environment import shipped
    from harness.foreign.systems import system_info
    from systems.registry import names

    known = [name] if name else [*names(), *(ENV + folder for folder in shipped())]
    described = [_describe(one, system_info(one)) for one in known]

    def listed() -> None:
        rows = [
            (
                one["name"],
                one["paper"],
                ", ".join(one["devices"]),
                "yes" if one["faithful"] else "no",
                one["summary"],
            )
            for one in described
        ]
        heads = ("name", "paper", "devices", "faithful", "what it does")
        print_table(
            heads,
            rows,
            prose=("what it does",),
            hidden=() if table.wide else ("devices", "faithful"),
        )

    def one() -> None:
        entry = described[0]
        print(f"{entry['name']} ({entry['paper']}): {entry['summary']}")
        # Spaces, so that a long choice is folded between two values.
        options = [
            (
                option["name"],
                f"{_default(option)} ({option['type'].replace('|', ' | ')})",
                option["description"],
            )
            for option in entry["options"]
        ]
        heads = ("option", "default (type)", "meaning")
        print_table(heads, options, f"-o key=value of {entry['name']}", prose=heads[1:])

    call.emit({"systems": described}, one if name else listed)


def _default(option: dict[str, Any]) -> str:
    """Return an option's default in words: 0 where the meaning of 0 is `auto`."""
    is_auto = option["default"] == 0 and "auto:" in option["description"]
    return "0, auto" if is_auto else str(option["default"])


@app.verb
def show(
    name: Annotated[str, typer.Argument(help="a system, or module:Class")],
    call: OnResults,
) -> None:
    """Show the parts of a system's data path in the order in which a mini-batch passes
    them: their buffers, and their work in the last epoch of its newest run that counts.

    Examples:
        outcore systems show graphbolt
    """
    from harness.check.data_paths import line_of, parts_of
    from harness.foreign.systems import system_info
    from systems.registry import load

    info = system_info(name)
    record = _newest(call.results_root, name)
    parts = parts_of(load(name)) if record is None else _names(record)
    uses = [] if record is None else _uses(record)
    content = {
        "system": name,
        "summary": info.summary,
        "parts": parts,
        "run": None if record is None else record.run_id,
        "uses": uses,
    }

    def shown() -> None:
        print_lines(f"{name} ({info.paper}): {info.summary}", line_of(parts))
        if record is None:
            print_lines(
                f"no run of it under {call.results_root} counts and records its parts; "
                f"`outcore run {name} --dataset DATASET` makes one"
            )
            return
        rows = [
            (use["name"], _sizes(use["bytes"]), _work(use["counts"])) for use in uses
        ]
        epoch = record.epochs[-1].epoch
        title = f"epoch {epoch} of {record.run_id}, {record.config.dataset.name}"
        print_table(("part", "planned", "work"), rows, title, prose=("part", "work"))

    call.emit(content, shown)


def _newest(root: Path, system: str) -> Record | None:
    """Return the newest run of a system that counts and records its parts; None
    without one."""
    from harness.records.record import COUNTED
    from harness.results.store import records

    found = None
    for record in records(root):
        counts = record.verdict in COUNTED and record.status == "ok"
        if record.system == system and counts and record.facts.parts and record.epochs:
            found = record
    return found


def _names(record: Record) -> list[str]:
    return [part.name for part in record.facts.parts]


def _uses(record: Record) -> list[dict[str, Any]]:
    return [
        {"name": part.name, "bytes": _planned(record, part), "counts": part.counts}
        for part in record.facts.parts
    ]


def _planned(record: Record, part: PartUse) -> dict[str, int]:
    """Return the bytes of a part's buffers in the run's plan, by tier."""
    found: dict[str, int] = {}
    for item in record.memory.plan:
        if item.name in part.buffers:
            found[item.tier] = found.get(item.tier, 0) + item.bytes
    return found


def _sizes(by_tier: dict[str, int]) -> str:
    return ", ".join(f"{format_bytes(n)} {tier}" for tier, n in by_tier.items()) or "–"


def _work(counts: dict[str, float]) -> str:
    """Return the counts of a part as text, with the share of its hits."""
    shown = []
    for name, count in counts.items():
        text = f"{name.replace('_', ' ')} {count:,.0f}"
        if name == "bytes":
            text = format_bytes(int(count))
        if name == "hits" and counts.get("rows"):
            text += f" ({100 * count / counts['rows']:.1f} %)"
        shown.append(text)
    return ", ".join(shown) or "–"


@app.verb
def setup(
    name: Annotated[str, typer.Argument(help="NAME of env:NAME")], call: Call
) -> None:
    """Make the environment of a foreign system: its packages, installed once, beside no
    other system's. `pyg` compiles two packages, for 11 to 20 minutes on two cores.

    Examples:
        outcore systems setup graphbolt
    """
    from harness.foreign import ENV
    from harness.foreign.environment import find

    folder = find(name.removeprefix(ENV))
    with call.progress() as progress:
        progress.title(f"setting up {ENV}{folder.name}", "set up")
        if folder.compiled:
            packages = " and ".join(folder.compiled)
            progress.keep(
                f"{packages} are compiled, which takes 11 to 20 minutes for PyG's two "
                "on two cores"
            )
        made = folder.setup(lambda line: progress(line[:_LINE]))
    then = f"outcore check --foreign {folder.name}"
    call.emit(
        {"system": ENV + folder.name, "environment": str(made), "next": [then]},
        [str(made), f"next: {then}"],
    )


def _describe(name: str, info: Any) -> dict[str, Any]:
    from harness.foreign import is_foreign

    options: list[dict[str, Any]] = []
    schema = info.options.model_json_schema().get("properties", {})
    for key, field in info.options.model_fields.items():
        default = field.get_default(call_default_factory=True)
        kind = _type_name(schema.get(key, {}))
        options.append(
            {
                "name": key,
                "type": kind,
                "default": default,
                "description": field.description or "",
            }
        )
    reported = {
        field: getattr(info, field)
        for field in ("name", "paper", "summary", "faithful")
    }
    if is_foreign(name):
        reported["name"] = name
    return {**reported, "devices": list(info.devices), "options": options}


def _type_name(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(_type_name(part) for part in schema["anyOf"])
    return str(schema.get("type", "value"))
