"""Text of `outcore claims --explain ID`: the numbers behind a verdict and the differences from the paper's setting."""

from __future__ import annotations

from typing import Any

from harness.claims.judge import Judged
from harness.claims.published import find_claim
from workloads.units import format_bytes, format_count

_READ = {
    "text": "as printed",
    "computed": "computed from printed numbers",
    "plot": "read off a plot",
    "words": "said in words, not as a number",
}


def explain(judged: Judged) -> list[str]:
    """Return the lines that explain a verdict, most important first."""
    lines = [
        f"{judged.id} ({judged.paper}): {judged.claim}",
        f"paper: {judged.paper_value} {judged.unit} ({find_claim(judged.id).where}; {judged.condition}; "
        f"{_READ[judged.read]}; "
        f"tolerance {judged.tolerance or 'none'})",
        f"judged in: {judged.setting}",
        f"ours: {measured_text(judged)}",
        f"verdict: {judged.verdict}" + (f": {judged.reason}" if judged.reason else ""),
    ]
    found = judged.found
    if found is None:
        return lines
    lines += [f"  {line}" for line in found.detail]
    lines += [f"differs from the paper: {line}" for line in [*setting_lines(dict(found.setting)), *found.differs]]
    if found.studies:
        lines.append(f"studies: {', '.join(found.studies)}")
    if found.runs:
        lines.append(f"runs: {', '.join(found.runs)}")
    return lines


def measured_text(judged: Judged) -> str:
    """Format the measured number with its interval; a dash where nothing was measured."""
    if judged.measured is None:
        return "–"
    return f"{number_text(judged.measured)}{interval_text(judged)} {judged.unit}".strip()


def interval_text(judged: Judged) -> str:
    """Format the interval of the measured number as ` [11–13, 95 %]`; empty where there is none."""
    low, high = judged.interval or (0, 0)
    if low == high:
        return ""
    kind = {"bootstrap95": "95 %"}.get(judged.interval_kind, judged.interval_kind)
    return f" [{number_text(low)}–{number_text(high)}, {kind}]"


def setting_lines(config: dict[str, Any]) -> list[str]:
    """Describe scale, device, cap and disk of our runs, one line each."""
    lines = []
    if data := config.get("dataset"):
        lines.append(
            f"dataset {data['name']}: {format_count(data['num_nodes'])} nodes, {format_count(data['num_edges'])} "
            f"edges, dimension {data['dim']}"
        )
    parts = [f"mini-batches of {config['batch_size']}"] if "batch_size" in config else []
    parts += [f"{config['max_batches']} of them an epoch"] if config.get("max_batches") else []
    if parts:
        lines.append(", ".join(parts))
    if "device" in config:
        memory = config.get("device_memory_bytes")
        emulated = " (EMULATED)" if str(config["device"]).startswith("emulated:") else ""
        lines.append(f"device {config['device']}{emulated}" + (f" with {format_bytes(memory)}" if memory else ""))
    if "memory" in config:
        lines.append("no memory cap" if config["memory"] == "none" else f"memory {config['memory']}")
    if "disk_class" in config:
        name = config["disk_class"]
        lines.append("the bare disk of this host" if name == "none" else f"disk limited to the class {name}")
    return lines


def number_text(value: float) -> str:
    """Format a number with 3 significant digits, or without decimals from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
