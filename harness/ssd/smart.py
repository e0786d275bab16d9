"""Health of a drive by nvme-cli or smartctl, where one is installed and permitted; never its serial number."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

Plain = dict[str, Any]
_TIMEOUT_S = 15
_ZERO_CELSIUS = 273
# SATA attributes by number.
_ATTRIBUTES = {231: "life_left", 241: "written_lbas", 242: "read_lbas"}


def health(disk: str) -> tuple[Plain, str]:
    """Return (health of the disk with this kernel name, reason where there is none). Keys, where the drive reports
    them: `tool`, `temperature_c`, `percentage_used`, `available_spare_percent`, `data_read_bytes`,
    `data_written_bytes`, `power_on_hours`, `media_errors`, `passed`."""
    tried = []
    for tool, command, parse in (
        ("nvme-cli", ["nvme", "smart-log", f"/dev/{disk}", "-o", "json"], parse_nvme),
        ("smartctl", ["smartctl", "-j", "-a", f"/dev/{disk}"], parse_smartctl),
    ):
        if shutil.which(command[0]) is None:
            tried.append(f"{tool} is not installed")
            continue
        if tool == "nvme-cli" and not disk.startswith("nvme"):
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            tried.append(f"{tool} did not answer")
            continue
        found = parse(done.stdout)
        if found:
            return {"tool": tool, **found}, ""
        tried.append(f"{tool} says nothing of {disk}")
    return {}, "; ".join(tried)


def parse_nvme(text: str) -> Plain:
    """Parse the output of `nvme smart-log -o json`; empty where it is no health log."""
    log = _object(text)
    if "data_units_read" not in log:
        return {}
    # The standard counts units of a thousand blocks of 512 bytes.
    found = {
        "temperature_c": log["temperature"] - _ZERO_CELSIUS if log.get("temperature") else None,
        "percentage_used": log.get("percent_used", log.get("percentage_used")),
        "available_spare_percent": log.get("avail_spare"),
        "data_read_bytes": int(log["data_units_read"]) * 512_000,
        "data_written_bytes": int(log.get("data_units_written", 0)) * 512_000,
        "power_on_hours": log.get("power_on_hours"),
        "media_errors": log.get("media_errors"),
    }
    return {key: value for key, value in found.items() if value is not None}


def parse_smartctl(text: str) -> Plain:
    """Parse the output of `smartctl -j -a` for an NVMe or SATA drive."""
    report = _object(text)
    found: Plain = {
        "passed": (report.get("smart_status") or {}).get("passed"),
        "temperature_c": (report.get("temperature") or {}).get("current"),
        "power_on_hours": (report.get("power_on_time") or {}).get("hours"),
    }
    log = report.get("nvme_smart_health_information_log") or {}
    if log:
        found |= {
            "percentage_used": log.get("percentage_used"),
            "available_spare_percent": log.get("available_spare"),
            "data_read_bytes": int(log.get("data_units_read", 0)) * 512_000,
            "data_written_bytes": int(log.get("data_units_written", 0)) * 512_000,
            "media_errors": log.get("media_errors"),
        }
    block = int(report.get("logical_block_size") or 512)
    for entry in (report.get("ata_smart_attributes") or {}).get("table", []):
        name = _ATTRIBUTES.get(entry.get("id"))
        raw = (entry.get("raw") or {}).get("value")
        if name in ("written_lbas", "read_lbas") and raw is not None:
            found["data_written_bytes" if name == "written_lbas" else "data_read_bytes"] = int(raw) * block
        elif name == "life_left":
            found["percentage_used"] = 100 - int(entry.get("value", 100))
    return {key: value for key, value in found.items() if value is not None}


def _object(text: str) -> Plain:
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
