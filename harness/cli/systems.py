"""`outcore systems`: every system, its paper, devices, whether it is faithful, and its
options; environments."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from harness.cli.common import Call, Verbs
from harness.cli.table import Wide, print_table

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
                f"{packages} are compiled, which takes 11 to 20 minutes for PyG's "
                "two on two cores"
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
