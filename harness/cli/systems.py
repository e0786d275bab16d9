"""`outcore systems`: every system, its paper, devices, whether it is faithful, and its options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import Json, Quiet, Verbose, print_json


def systems(
    name: Annotated[str | None, typer.Argument(help="one system, or module:Class; all without it")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the systems, or one with its options and their defaults."""
    from systems.registry import load, names

    described = [_describe(load(known)) for known in ([name] if name else names())]
    if json_:
        print_json({"systems": described})
        return
    from rich.table import Table

    from harness.table import console

    out = console()
    if name is None:
        table = Table("name", "paper", "devices", "faithful", "what it does")
        for entry in described:
            table.add_row(
                entry["name"],
                entry["paper"],
                ", ".join(entry["devices"]),
                "yes" if entry["faithful"] else "no",
                entry["summary"],
            )
        out.print(table)
        return
    entry = described[0]
    out.print(f"{entry['name']} ({entry['paper']}): {entry['summary']}")
    table = Table("option", "type", "default", "meaning", title=f"-o key=value of {entry['name']}")
    for option in entry["options"]:
        table.add_row(option["name"], option["type"], str(option["default"]), option["description"])
    out.print(table)


def _describe(system: Any) -> dict[str, Any]:
    info = system.info
    fields = info.options.model_fields
    schema = info.options.model_json_schema().get("properties", {})
    return {
        "name": info.name,
        "paper": info.paper,
        "summary": info.summary,
        "faithful": info.faithful,
        "devices": list(info.devices),
        "options": [
            {
                "name": key,
                "type": _type_name(schema.get(key, {})),
                "default": field.get_default(call_default_factory=True),
                "description": field.description or "",
            }
            for key, field in fields.items()
        ],
    }


def _type_name(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(_type_name(part) for part in schema["anyOf"])
    return str(schema.get("type", "value"))


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("systems")(systems)
