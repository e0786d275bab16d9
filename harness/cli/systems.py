"""`outcore systems`: every system, its paper, devices, whether it is faithful, and its options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import Call, print_json, print_table


def systems(
    call: Call, name: Annotated[str | None, typer.Argument(help="one system, or module:Class; all without it")] = None
) -> None:
    """List the systems, or one with its options and their defaults."""
    from systems.registry import load, names

    described = [_describe(load(known)) for known in ([name] if name else names())]
    if call.json:
        print_json({"systems": described})
        return
    if name is None:
        rows = [
            (one["name"], one["paper"], ", ".join(one["devices"]), "yes" if one["faithful"] else "no", one["summary"])
            for one in described
        ]
        print_table(("name", "paper", "devices", "faithful", "what it does"), rows)
        return
    entry = described[0]
    print(f"{entry['name']} ({entry['paper']}): {entry['summary']}")
    options = [option.values() for option in entry["options"]]
    print_table(("option", "type", "default", "meaning"), map(list, options), f"-o key=value of {entry['name']}")


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
