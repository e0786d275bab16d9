"""Rule 26: training used the dataset's feature rows."""

from __future__ import annotations

from harness.judge.context import RunContext
from harness.judge.registry import Finding, rule, unknown
from harness.records.record import Record


@rule("26", "features_equal_the_dataset", of=["ok"], reads=True)
def features_equal_the_dataset(record: Record, context: RunContext) -> Finding | None:
    """A system that reads no feature rows, or wrong ones, is the fastest of all.

    Compares feature rows at training with the dataset read by direct reads: a digest over the whole first warm-up
    epoch, and in every epoch 128 rows of each of four mini-batches, drawn when the epoch began.
    """
    evidence = record.readings
    if not evidence.features:
        return unknown(evidence.unchecked or "no row was checked")
    wrong = [check for check in evidence.features if not check.ok]
    if wrong:
        first = wrong[0]
        where = "the whole epoch" if first.whole else f"mini-batch {first.batch}"
        return Finding(
            False, f"epoch {first.epoch}, {where}: {first.detail}; {len(wrong)} of {len(evidence.features)} checks"
        )
    rows = sum(check.rows for check in evidence.features)
    whole = sum(check.whole for check in evidence.features)
    return Finding(
        True, f"{rows} rows of {len(evidence.features) - whole} mini-batches" + (" and an epoch" if whole else "")
    )


@rule("26", "features_were_checked", "CAVEATS", of=["ok"], evidence=True, reads=True)
def features_were_checked(record: Record, context: RunContext) -> Finding | None:
    """An epoch without a compared feature row may have been trained on arbitrary data."""
    checked = {check.epoch for check in record.readings.features}
    left = [str(epoch.epoch) for epoch in record.epochs if epoch.epoch not in checked]
    return Finding(not left, f"epochs {', '.join(left)} were not checked" if left else "every epoch")
