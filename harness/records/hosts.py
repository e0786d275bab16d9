"""Fingerprints of a run's host: runs of two hosts, disks, limits or devices are never
averaged together."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import workloads
from harness.cache import digest_of
from workloads.errors import InputError

Properties = Mapping[str, Any]

#: Environment variable with the label of this host in a fleet (`harness/hosts`).
HOST_LABEL = "OUTCORE_HOST_LABEL"
# Valid labels: those that Ray allows for its nodes.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
# Properties that identify a disk; its kernel name and number change with the order of
# plugging in.
_DISK = (
    "model",
    "file_system",
    "size_bytes",
    "rotational",
    "logical_block_bytes",
    "scheduler",
    "read_ahead_kib",
)
_PROFILES = Path(workloads.__file__).parent / "accelerators"


def host_fingerprint(environment: Properties) -> str:
    """Return 12 hex digits over processor, memory, disk and GPUs of an
    `environment.describe`; empty if unknown.

    `disk.drive` is the identity of the drive (`harness.ssd.identity`), so two drives of
    one model differ. Where it is unknown, two hosts of one model share the fingerprint,
    unless their operator labels them.
    """
    cpu = environment.get("cpu") or {}
    disk = environment.get("disk") or {}
    total = (environment.get("memory") or {}).get("total_bytes")
    content = {
        "cpu": [cpu.get("model"), cpu.get("usable")],
        # Rounded, since the kernel's own share varies with its version.
        "memory_gib": round(total / 2**30) if total else None,
        "disk": [disk.get(key) for key in _DISK],
        "gpus": [
            [gpu.get("model"), gpu.get("memory_bytes")]
            for gpu in environment.get("gpu") or []
        ],
    }
    # Records of older versions name no drive: two of one model look alike.
    if drive := disk.get("drive"):
        content["drive"] = drive
    if label := environment.get("host_label"):
        content["label"] = label
    return digest_of(content)[:12] if cpu or disk else ""


def host_name(environment: Properties, digits: int = 12) -> str:
    """Return the first `digits` of a host's fingerprint, after its operator's label if
    it has one, like `pm1743-a (0123456789ab)`; empty if the host is unknown."""
    fingerprint = host_fingerprint(environment)[:digits]
    label = environment.get("host_label")
    return f"{label} ({fingerprint})" if label else fingerprint


def check_label(option: str, label: str) -> None:
    """Check the label of a host that an option names; raises InputError."""
    if not _LABEL.fullmatch(label):
        fix = "use up to 63 letters, digits, `-`, `_` and `.`, like pm1743-a"
        raise InputError(f"{option}: {label!r} is no label of a host", fix)


def profile_digests(folder: Path = _PROFILES) -> dict[str, str]:
    """Return 12 hex digits over the coefficients of each packaged emulated accelerator,
    by name."""
    digests = {}
    for path in sorted(folder.glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        values = {
            key: entry["value"]
            for key, entry in content.items()
            if isinstance(entry, dict) and "value" in entry
        }
        digests[path.stem] = digest_of(values)[:12]
    return digests


def measured_on(record: Properties) -> dict[str, Any]:
    """Return the facts that, beside the configuration, must be equal in two compared
    runs.

    `host`: label and fingerprint of the host. `limits`: I/O limits of the disk class,
    for each disk. `accelerator`: digest of an emulated device's profile, if the record
    has it. `harness`: fingerprint of the measuring code.
    """
    environment = record.get("environment") or {}
    kind, _, name = str((record.get("config") or {}).get("device", "")).partition(":")
    limits = (record.get("disk") or {}).get("limits") or []
    return {
        "host": host_name(environment),
        "limits": [
            {key: value for key, value in limit.items() if key != "device"}
            for limit in limits
        ],
        "accelerator": (environment.get("accelerators") or {}).get(name)
        if kind == "emulated"
        else None,
        "harness": (record.get("code") or {}).get("harness", ""),
    }
