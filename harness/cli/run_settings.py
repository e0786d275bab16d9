"""Settings in which listed runs differ, so that no two runs with different settings
look equal in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.hosts import host_name
from harness.records.record import LABELS, Record
from workloads.units import format_bytes

# Parts of a configuration with a column of their own.
_COLUMNS = {"system", "dataset", "memory", "options"}
# Hex digits that show a dataset's or a host's fingerprint.
DIGITS = 8


@dataclass(frozen=True)
class Differing:
    """The settings in which rows of a table differ.

    Attributes:
        usual: value of each that more than half of the rows have, where there is one.
        rows: of each row, those of its values that are not usual, by name.
    """

    usual: dict[str, str]
    rows: list[dict[str, str]]

    @property
    def texts(self) -> list[str]:
        """Text for each row, like `batch_size 50, disk_class none`; empty where a row
        has the usual values."""
        return [_joined(row) for row in self.rows]

    @property
    def mostly(self) -> str:
        """Text on the usual values; empty without any."""
        return _joined(self.usual)


def _joined(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def settings_of(record: Record) -> dict[str, str]:
    """Return a run's settings, and its dataset's content and host, as text by name;
    without those of a column."""
    config = record.config
    found = {}
    for name, value in config.model_dump(
        mode="json", exclude={*LABELS, *_COLUMNS}
    ).items():
        if name == "layers" and value == len(config.fanout):
            continue  # as the fan-out shows
        if name == "device_memory_bytes":
            found["device_memory"] = "none" if value is None else format_bytes(value)
        elif name == "timeout_s":
            found["timeout"] = f"{value:g}s"
        else:
            found[name] = text_of(value)
    # Datasets of other names have other contents.
    found[f"contents of {config.dataset.name}"] = config.dataset.fingerprint[-DIGITS:]
    found["host"] = host_name(record.environment, DIGITS)
    return found


def text_of(value: Any) -> str:
    """Return a setting's value as a user writes it: `10,10` for a list, `none` for
    nothing."""
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def differing(
    rows: Sequence[Mapping[str, str]], besides: Sequence[str] = ()
) -> Differing:
    """Return the settings in which rows differ.

    Args:
        rows: settings of each row by name; a name that a row lacks is no difference for
            it.
        besides: names that are shown elsewhere.
    """
    usual: dict[str, str] = {}
    shown: list[dict[str, str]] = [{} for _ in rows]
    for name in dict.fromkeys(name for row in rows for name in row):
        counts = Counter(row[name] for row in rows if name in row)
        if name in besides or len(counts) < 2:
            continue
        value, count = counts.most_common(1)[0]
        if 2 * count > counts.total():
            usual[name] = value
        for row, different in zip(rows, shown, strict=True):
            if name in row and row[name] != usual.get(name):
                different[name] = row[name]
    return Differing(usual, shown)
