"""Notes below a comparison of drives: predictions, emulated and aged drives, missing
epochs and prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.drives.whatif import only_alike
from harness.records.hosts import host_fingerprint

if TYPE_CHECKING:
    from harness.drives.comparison import DriveComparison, DriveSide
    from harness.drives.prices import Price
    from harness.records.record import Record

BURST = "burst"
BEATEN = "beats its profile"
# Reason in a table -> its explanation.
ABOVE = {
    BURST: "the kernel's limiter lets a burst pass after an idle moment, so short "
    "epochs are faster than the limit",
    BEATEN: "runs read faster than fio did, which measured in a slow moment, or a "
    "cache "
    "below the kernel served them; "
    "profile the drive again",
}
# Source of a device's rates -> what is unknown of it.
UNKNOWN = {
    "limits": "no latency, no curve of its own",
    "limits, runs": "few reads in flight are taken to be as slow as on the device "
    "that runs "
    "were made on",
}


def notes_on(
    found: DriveComparison,
    records: Sequence[Record],
    prices: Mapping[str, Price],
    others: int,
) -> Iterable[str]:
    """Yield the notes of a comparison.

    Args:
        records: the compared runs.
        prices: price by the name of a drive or a class.
        others: number of workloads that are not shown.
    """
    if not records:
        alone = f"drives are compared by {found.known_by} alone"
        yield f"no usable run is there, so {alone}: `outcore run … --disk-class NAME`"
    yield from _on_epochs(found, records)
    yield from _on_drives(found.sides)
    hosts = {host_fingerprint(record.environment) for record in records}
    if len(hosts) > 1:
        yield (
            f"runs of {len(hosts)} kinds of host: what processors add differs between "
            "them"
        )
    if any(record.config.device.startswith("emulated:") for record in records):
        yield "the accelerator is EMULATED: training takes the time a named one takes"
    yield from _on_prices(found.sides, prices)
    if others:
        yield (
            f"{others} other workloads were run and are not shown (choose by dataset "
            "or memory)"
        )


def _on_epochs(found: DriveComparison, records: Sequence[Record]) -> Iterable[str]:
    table = found.table
    predicted = table.loc[table["predicted"].eq(True), "device"].unique()
    if len(predicted):
        classes = dict.fromkeys(record.config.disk_class for record in records)
        counted = ", ".join("no limits" if name == "none" else name for name in classes)
        how = (
            f"from the counters of runs elsewhere, under {counted}, and the drive's "
            "profile"
        )
        yield f"PREDICTED, not measured, on {', '.join(predicted)}: {how}"
    for source, unknown in UNKNOWN.items():
        limited = [
            side.device.name for side in found.sides if side.device.source == source
        ]
        if limited:
            yield (
                f"of {', '.join(limited)} only the class's limits are known: {unknown}"
            )
    for side in found.sides:
        old = sum(only_alike(record, side.device) for record in records)
        if old:
            why = (
                "its profile or the runs are of an older version, which did not record "
                "the drive"
            )
            yield (
                f"{side.device.name}: {old} runs count by equal model and capacity "
                f"alone: {why}"
            )
    places = table["system"] + " on " + table["device"]
    for above, why in ABOVE.items():
        beaten = places[table["above"] == above]
        if len(beaten):
            yield f"more than 100 % of the drive ({above}), {', '.join(beaten)}: {why}"
    for side in found.sides:
        shown = set(table.loc[table["device"] == side.device.name, "system"])
        absent = [system for system in table["system"].unique() if system not in shown]
        if absent:
            why = (
                "not run on it, and what was read elsewhere does not say what would be "
                "read there"
            )
            yield f"{side.device.name} has no epoch of {', '.join(absent)}: {why}"


def _on_drives(sides: Sequence[DriveSide]) -> Iterable[str]:
    emulated = [side.device.name for side in sides if side.device.limited]
    if emulated:
        yield (
            f"{', '.join(emulated)}: EMULATED by limiting IOPS and bandwidth of "
            "another device"
        )
    for side in sides:
        if side.device.drive:
            condition = side.device.drive.condition
            steady = (
                "settled"
                if condition.steady and condition.steady.attained
                else "did not settle"
            )
            filled = (
                "preconditioned" if condition.preconditioned else "not preconditioned"
            )
            yield (
                f"{side.device.name}: {filled}, file system {condition.fill:.0%} full, "
                f"4 KiB reads {steady}"
            )


def _on_prices(
    sides: Sequence[DriveSide], prices: Mapping[str, Price]
) -> Iterable[str]:
    sources = {side.price.source for side in sides if side.price}
    if sources:
        yield f"prices: {'; '.join(sorted(sources))}"
    for side in sides:
        whole = side.device.disk_class.partition("/")[0]
        if side.price is None and whole in prices:
            fix = f"give it a price of its own, under the name {side.device.disk_class}"
            yield (
                f"{side.device.name} has no price: that of {whole} is of the whole "
                f"drive; {fix}"
            )
