"""Where a run was measured: runs of two hosts, disks, limits or devices are never put into one average."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import workloads

Plain = Mapping[str, Any]

_GIB = 2**30
# What of a disk tells it from another one; its kernel name and number change with the order of plugging in.
_DISK = ("model", "file_system", "size_bytes", "rotational", "logical_block_bytes", "scheduler", "read_ahead_kib")
_PROFILES = Path(workloads.__file__).parent / "accelerators"


def host_fingerprint(environment: Plain) -> str:
    """12 hex digits over processor, memory, disk and GPUs of an `environment.describe`; empty where none is known.

    Two hosts of one model share it, unless the operator labels them: runs on them are runs on one kind of machine.
    """
    cpu, disk = environment.get("cpu") or {}, environment.get("disk") or {}
    total = (environment.get("memory") or {}).get("total_bytes")
    content = {
        "cpu": [cpu.get("model"), cpu.get("usable")],
        # The kernel takes its share first, a little more or less with each version.
        "memory_gib": round(total / _GIB) if total else None,
        "disk": [disk.get(key) for key in _DISK],
        "gpus": [[gpu.get("model"), gpu.get("memory_bytes")] for gpu in environment.get("gpu") or []],
    }
    # Behind a virtual disk two drives look alike: only the operator knows which is which.
    if label := environment.get("host_label"):
        content["label"] = label
    return _digest(content) if cpu or disk else ""


def profile_digests(folder: Path = _PROFILES) -> dict[str, str]:
    """Each emulated accelerator that comes with the package -> 12 hex digits over its coefficients."""
    digests = {}
    for path in sorted(folder.glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        values = {key: entry["value"] for key, entry in content.items() if isinstance(entry, dict) and "value" in entry}
        digests[path.stem] = _digest(values)
    return digests


def measured_on(record: Plain) -> dict[str, Any]:
    """What must be equal, beside the configuration, before two runs are compared.

    `host`: its fingerprint. `limits`: what the disk class came to, read operations and bytes a second for each disk.
    `accelerator`: the version of an emulated device's profile, where the record has it. `harness`: the fingerprint of
    the code that measured.
    """
    environment = record.get("environment") or {}
    kind, _, name = str((record.get("config") or {}).get("device", "")).partition(":")
    known = environment.get("accelerators") or {}
    limits = (record.get("disk") or {}).get("limits") or []
    return {
        "host": host_fingerprint(environment),
        "limits": [{key: value for key, value in limit.items() if key != "device"} for limit in limits],
        "accelerator": known.get(name) if kind == "emulated" else None,
        "harness": (record.get("code") or {}).get("harness", ""),
    }


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
