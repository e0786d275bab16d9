"""`outcore systems`: every system, its paper, devices, whether it is faithful, and its options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.cli.common import Call, print_table


def systems(
    call: Call, name: Annotated[str | None, typer.Argument(help="one system, or module:Class; all without it")] = None
) -> None:
    """List the systems, or one with its options and their defaults."""
    from systems.registry import load, names

    described = [_describe(load(known)) for known in ([name] if name else names())]

    def listed() -> None:
        rows = [
            (one["name"], one["paper"], ", ".join(one["devices"]), "yes" if one["faithful"] else "no", one["summary"])
            for one in described
        ]
        print_table(("name", "paper", "devices", "faithful", "what it does"), rows)

    def one() -> None:
        entry = described[0]
        print(f"{entry['name']} ({entry['paper']}): {entry['summary']}")
        options = [list(option.values()) for option in entry["options"]]
        print_table(("option", "type", "default", "meaning"), options, f"-o key=value of {entry['name']}")

    call.tell({"systems": described}, one if name else listed)


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
