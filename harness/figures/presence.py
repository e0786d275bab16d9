"""Which of the runs that a figure needs have a record, for `outcore figures --list`; opens no dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workloads.errors import InputError
from workloads.units import parse_bytes

if TYPE_CHECKING:
    from harness.experiment import PlannedRun
    from harness.figures.base import Figure
    from harness.figures.evidence import Evidence

# Settings that a record's configuration keeps under the same name and in the same form.
_SAME = (
    "memory", "model", "hidden", "heads", "learning_rate", "dropout", "sampler", "fanout", "replace", "shuffle",
    "batch_size", "max_batches", "epochs", "warmup", "device", "disk_class", "stages", "cores", "ranks", "partition",
    "keep_order", "seed", "verify", "test_nodes",
)  # fmt: skip


class Presence:
    """The runs of an evidence, to be asked about cells of experiments."""

    def __init__(self, evidence: Evidence) -> None:
        self._records: dict[str, list[dict[str, Any]]] = {}
        records: list[dict[str, Any]] = [] if evidence.frame.empty else list(evidence.frame["record"])
        for record in records:
            if record["status"] == "failed":
                continue
            config = record["config"]
            key = _key(record["system"], config["dataset"]["name"], config["device_memory_bytes"], config)
            self._records.setdefault(key, []).append(record)

    def has(self, cell: PlannedRun) -> bool:
        """Whether a run of this cell has a record; its options are a part of the record's, which holds all."""
        return any(_within(cell.settings.options, record["config"]["options"]) for record in self._of(cell))

    def runs(self, cell: PlannedRun, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The records of this cell whose options are these; `options` has a default for each that was not asked for."""
        asked = cell.settings.options
        return [
            record
            for record in self._of(cell)
            if _within(asked, record["config"]["options"]) and _agree(record["config"]["options"], options)
        ]

    def _of(self, cell: PlannedRun) -> list[dict[str, Any]]:
        settings = cell.settings
        memory = None if settings.device_memory is None else parse_bytes(settings.device_memory)
        key = _key(cell.system, str(settings.dataset), memory, settings.model_dump())
        return self._records.get(key, [])

    def count(self, figure: Figure, profile: dict[str, Any]) -> tuple[int, int]:
        """Runs that the figure needs under a profile, and how many of them have a record."""
        from harness.sweep import union

        wanted = union(figure.experiments(profile))
        return len(wanted), sum(self.has(cell) for cell in wanted)


def _key(system: str, dataset: str, device_memory: int | None, settings: Mapping[str, Any]) -> str:
    return repr([system, dataset, device_memory, *(settings[name] for name in _SAME)])


def _within(asked: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
    return all(name in held and _plain(held[name]) == _plain(value) for name, value in asked.items())


def _agree(held: Mapping[str, Any], complete: Mapping[str, Any]) -> bool:
    return all(name not in complete or _plain(complete[name]) == _plain(value) for name, value in held.items())


def _plain(value: Any) -> Any:
    """Sizes are kept in bytes and may be asked for as text."""
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except InputError:
            return value
    return list(value) if isinstance(value, Sequence) else value
