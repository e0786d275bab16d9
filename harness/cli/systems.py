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
