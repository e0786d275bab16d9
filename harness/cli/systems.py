"""`outcore systems`: every system, its paper, devices, whether it is faithful, and its options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import Call
from harness.cli.table import Wide, print_table


def systems(
    table: Wide,
    call: Call,
    name: Annotated[str | None, typer.Argument(help="one system, or module:Class; all without it")] = None,
) -> None:
    """List the systems, or one with its options and their defaults.

    Examples:
        outcore systems
        outcore systems gnndrive
    """
    from systems.registry import load, names

    described = [_describe(load(known)) for known in ([name] if name else names())]

    def listed() -> None:
        rows = [
            (one["name"], one["paper"], ", ".join(one["devices"]), "yes" if one["faithful"] else "no", one["summary"])
            for one in described
        ]
        heads = ("name", "paper", "devices", "faithful", "what it does")
        print_table(heads, rows, prose=("what it does",), hidden=() if table.wide else ("devices", "faithful"))

    def one() -> None:
        entry = described[0]
        print(f"{entry['name']} ({entry['paper']}): {entry['summary']}")
        # Spaces, so that a long choice is folded between two values.
        options = [
            (option["name"], f"{option['default']} ({option['type'].replace('|', ' | ')})", option["description"])
            for option in entry["options"]
        ]
        heads = ("option", "default (type)", "meaning")
        print_table(heads, options, f"-o key=value of {entry['name']}", prose=heads[1:])

    call.tell({"systems": described}, one if name else listed)


def _describe(system: Any) -> dict[str, Any]:
    info = system.info
    options: list[dict[str, Any]] = []
    schema = info.options.model_json_schema().get("properties", {})
    for key, field in info.options.model_fields.items():
        default, kind = field.get_default(call_default_factory=True), _type_name(schema.get(key, {}))
        options.append({"name": key, "type": kind, "default": default, "description": field.description or ""})
    told = {name: getattr(info, name) for name in ("name", "paper", "summary", "faithful")}
    return {**told, "devices": list(info.devices), "options": options}


def _type_name(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(_type_name(part) for part in schema["anyOf"])
    return str(schema.get("type", "value"))
