"""Health of a drive by nvme-cli or smartctl, where one is installed and permitted;
never its serial number."""

from __future__ import annotations

import json
import shutil
import subprocess

from workloads.arraytypes import JsonDict

_TIMEOUT_S = 15
_ZERO_CELSIUS = 273
# SATA attributes that count blocks, by number, and the number of the percentage of life
# that is left.
_BLOCKS = {241: "data_written_bytes", 242: "data_read_bytes"}
_LIFE_LEFT = 231


def health(disk: str) -> tuple[JsonDict, str]:
    """Return (health of the disk with this kernel name, reason where there is none).
    Keys, where the drive reports them: `tool`, `temperature_c`, `percentage_used`,
    `available_spare_percent`, `data_read_bytes`, `data_written_bytes`,
    `power_on_hours`, `media_errors`, `passed`."""
    tried = []
    for tool, command, parse in (
        ("nvme-cli", ["nvme", "smart-log", f"/dev/{disk}", "-o", "json"], parse_nvme),
        ("smartctl", ["smartctl", "-j", "-a", f"/dev/{disk}"], parse_smartctl),
    ):
        if shutil.which(command[0]) is None:
            tried.append(f"{tool} is not installed")
        elif tool == "smartctl" or disk.startswith("nvme"):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_TIMEOUT_S
                )
            except (OSError, subprocess.TimeoutExpired):
                tried.append(f"{tool} did not answer")
                continue
            if found := parse(done.stdout):
                return {"tool": tool, **found}, ""
            tried.append(f"{tool} says nothing of {disk}")
    return {}, "; ".join(tried)


def parse_nvme(text: str) -> JsonDict:
    """Parse the output of `nvme smart-log -o json`; empty where it is no health log."""
    log = _object(text)
    if "data_units_read" not in log:
        return {}
    temperature = log["temperature"] - _ZERO_CELSIUS if log.get("temperature") else None
    return _known(
        {
            "temperature_c": temperature,
            "power_on_hours": log.get("power_on_hours"),
            **_of_nvme(log),
        }
    )


def parse_smartctl(text: str) -> JsonDict:
    """Parse the output of `smartctl -j -a` for an NVMe or SATA drive."""
    report = _object(text)
    found: JsonDict = {
        "passed": (report.get("smart_status") or {}).get("passed"),
        "temperature_c": (report.get("temperature") or {}).get("current"),
        "power_on_hours": (report.get("power_on_time") or {}).get("hours"),
    }
    if log := report.get("nvme_smart_health_information_log"):
        found |= _of_nvme(log)
    block = int(report.get("logical_block_size") or 512)
    for entry in (report.get("ata_smart_attributes") or {}).get("table", []):
        raw = (entry.get("raw") or {}).get("value")
        if entry.get("id") in _BLOCKS and raw is not None:
            found[_BLOCKS[entry["id"]]] = int(raw) * block
        elif entry.get("id") == _LIFE_LEFT:
            found["percentage_used"] = 100 - int(entry.get("value", 100))
    return _known(found)


def _of_nvme(log: JsonDict) -> JsonDict:
    """Return the values that both tools report of an NVMe drive's health log, under
    slightly different names."""
    return {
        "percentage_used": log.get("percent_used", log.get("percentage_used")),
        "available_spare_percent": log.get("avail_spare", log.get("available_spare")),
        # The standard counts units of a thousand blocks of 512 bytes.
        "data_read_bytes": int(log.get("data_units_read", 0)) * 512_000,
        "data_written_bytes": int(log.get("data_units_written", 0)) * 512_000,
        "media_errors": log.get("media_errors"),
    }


def _known(found: JsonDict) -> JsonDict:
    return {key: value for key, value in found.items() if value is not None}


def _object(text: str) -> JsonDict:
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
