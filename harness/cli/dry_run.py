"""What `outcore bench --dry-run` shows of the plans: runs that do not fit, with the
least memory that each needs."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.common import OnBoth

if TYPE_CHECKING:
    from harness.plan.experiment import PlannedRun
    from harness.run.dry_run import DryPlan


class Plans:
    """Plans of runs that have no record yet, of a sweep with an isolation backend."""

    def __init__(self, missing: list[PlannedRun], isolation: str, call: OnBoth) -> None:
        from harness.run.dry_run import dry_plans

        with call.progress() as progress:
            roots = call.results_root, call.data_root
            self._found = dry_plans(
                missing, *roots, isolation=isolation, progress=progress
            )

    @property
    def content(self) -> list[dict[str, Any]]:
        """The plans as plain data: `fits` is null where a run was not planned, for the
        reason in `reason`."""
        shown = []
        for one in self._found:
            place = {
                "system": one.run.system,
                "dataset": one.run.settings.dataset,
                "memory": one.run.settings.memory,
            }
            options = dict(one.run.settings.options)
            shown.append(
                {
                    **place,
                    "options": options,
                    "fits": one.fits,
                    "reason": one.reason,
                    "least": one.least,
                }
            )
        return shown

    def lines(self) -> list[str]:
        """Return a line for each run that does not fit, and one for each reason why
        runs were not planned."""
        lines = [
            f"does not fit: {_named(one)}: {_fault(one)}"
            for one in self._found
            if one.fits is False
        ]
        reasons = Counter(one.reason for one in self._found if one.fits is None)
        lines += [
            f"not planned: {count} run{'s' * (count != 1)}, {reason}"
            for reason, count in reasons.items()
        ]
        if any(one.whole_cap for one in self._found):
            lines.append(
                "of a cap, interpreter, torch and a training step take a part: "
                "`outcore plan` measures it"
            )
        return lines

    def end(self) -> None:
        """End the command with exit code 2 and a sentence where runs are missing and
        none of them fits."""
        if not self._found or any(one.fits is not False for one in self._found):
            return
        known = [one for one in self._found if one.least]
        fix = "change the settings"
        if known:
            easiest = min(known, key=lambda one: one.least_bytes)
            fix = f"raise it: {easiest.run.system} takes the least, {easiest.least}"
        count = len(self._found)
        runs = "the run" if count == 1 else f"each of the {count} runs"
        print(
            f"outcore: {runs} to do would end as oom: no plan fits its memory; {fix}",
            file=sys.stderr,
        )
        raise typer.Exit(2)


def _named(one: DryPlan) -> str:
    settings = one.run.settings
    options = "".join(f" -o {name}={value}" for name, value in settings.options.items())
    return f"{one.run.system}{options} on {settings.dataset}, memory {settings.memory}"


def _fault(one: DryPlan) -> str:
    return f"{one.least} is the least that its plan takes" if one.least else one.reason
