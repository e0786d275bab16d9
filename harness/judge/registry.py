"""Rules of the verdict: their registry, the evidence beside a record that they use, and
the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from harness.isolation.base import IoLimit
from harness.records.record import COUNTED, Record, RuleOutcome, Status, Verdict
from systems.readings import DiskProfile

if TYPE_CHECKING:
    from harness.judge.trace import TraceFacts

Severity = Literal["INVALID", "SPOILT", "CAVEATS"]
# In ascending order: the worst severity of a broken rule gives the verdict.
_WEIGHT: tuple[Verdict, ...] = ("VALID", "CAVEATS", "SPOILT", "INVALID")


@dataclass(frozen=True)
class Calibration:
    """Measurements of an empty run (methodology rules 4, 12, 20).

    Attributes:
        floor_bytes: memory of interpreter, imports, model, optimiser and the log of an
            epoch.
        training_bytes: peak memory added by the largest mini-batch's digests and, if
            the run trains, by its step.
        peak_is_of_step: whether that peak is of the step alone; False: the kernel could
            not reset an earlier, higher one, so that `training_bytes` may include
            earlier use. None: not recorded.
        built_bytes: part of the floor that a run has too at its own gate `floor`, where
            everything is loaded and built; None: not recorded.
        imports_bytes: memory before the system's own code was loaded; None: its worker
            has no gate `imports`.
        library_bytes: part of the floor that loading the system and its libraries
            added; 0 for a foreign system.
        module_bytes: part of that for the system's own module.
        constructor_bytes: memory that the constructor of a foreign system took, after
            its imports; None: not reported.
        feature_read_bytes: bytes of features that a foreign system read into the page
            cache until its floor was measured, and in its training step, neither of
            which needs any.
        training_device_bytes: device memory of model, optimiser, the same step and
            copies, beside the tables.
        device_context_bytes: device memory of the CUDA contexts of all ranks, by NVML;
            None: not reported.
        train_s: uncontended training seconds of each epoch's mini-batches, by epoch.
        null_s: seconds of the same epochs with features already in memory, by epoch.
        max_nodes, max_edges: bounds over all mini-batches of the run.
        how: source of the times (`measured on 5 batches`, `modelled for each batch`).
    """

    floor_bytes: int
    training_bytes: int
    train_s: dict[int, float] = field(default_factory=dict)
    null_s: dict[int, float] = field(default_factory=dict)
    max_nodes: int = 0
    max_edges: int = 0
    how: str = ""
    training_device_bytes: int = 0
    device_context_bytes: int | None = None
    built_bytes: int | None = None
    imports_bytes: int | None = None
    library_bytes: int = 0
    module_bytes: int = 0
    constructor_bytes: int | None = None
    feature_read_bytes: int = 0
    peak_is_of_step: bool | None = None

    @property
    def memory(self) -> dict[str, int | None]:
        """Memory by its name in `Memory`."""
        names = (
            "floor_bytes",
            "training_bytes",
            "training_device_bytes",
            "device_context_bytes",
        )
        return {name: getattr(self, name) for name in names}


_CALIBRATION = TypeAdapter(Calibration)


@dataclass
class RunContext:
    """Evidence by which a run is judged, beside its record.

    Attributes:
        profile, bare_profile: device profiles with and without the run's limits; None:
            not measured.
        limits: I/O limits that the host enforces.
        unsealed: reason why a record differs from its seal; empty where it does not.
        trace: trace of the run's workload, set only for a run that has just ended.
    """

    profile: DiskProfile | None = None
    bare_profile: DiskProfile | None = None
    limits: tuple[IoLimit, ...] = ()
    calibration: Calibration | None = None
    unsealed: str = ""
    trace: TraceFacts | None = None


def context_of(record: Record, unsealed: str = "") -> RunContext:
    """Return the context of a record from its own evidence; records of older versions
    hold little of it."""
    kept = [record.disk.get(name) for name in ("limited", "bare")]
    limits = record.disk.get("limits") if record.readings.io_limited else None
    profile, bare_profile = (
        DiskProfile.from_plain(content) if content else None for content in kept
    )
    calibration = (
        _CALIBRATION.validate_python(record.compute)
        if "floor_bytes" in record.compute
        else None
    )
    enforced = tuple(IoLimit(**limit) for limit in limits or ())
    return RunContext(profile, bare_profile, enforced, calibration, unsealed)


@dataclass(frozen=True)
class Finding:
    """Result of a rule: whether it held, one phrase with the numbers, and (`known`)
    whether it could be judged."""

    ok: bool
    detail: str = ""
    known: bool = True


def unknown(why: str) -> Finding:
    """Return the finding of a rule that applies but cannot be judged: a caveat,
    whatever the severity (rule 30)."""
    return Finding(False, f"could not be judged: {why}", known=False)


Check = Callable[[Record, RunContext], Finding | None]


@dataclass(frozen=True)
class Rule:
    """One rule: its number in the methodology, the severity of breaking it, and the
    check.

    A check returns None if it does not apply to the run, and `unknown` if its evidence
    is missing. It uses the record alone, so that every reading of the record has the
    same result. Its name is the rule's; its docstring gives the rule's reason and
    method.
    """

    number: str
    severity: Severity
    transient: bool
    timed: bool
    check: Check

    @property
    def name(self) -> str:
        """Name of the rule in records and reports."""
        return self.check.__name__

    def outcome(self, record: Record, context: RunContext) -> RuleOutcome | None:
        """Return the rule's outcome for a record; None where the rule does not
        apply."""
        finding = self.check(record, context)
        return (
            None
            if finding is None
            else RuleOutcome(rule=self.number, name=self.name, **vars(finding))
        )


_RULES: list[Rule] = []


def rule(
    number: str,
    severity: Severity = "INVALID",
    *,
    of: Collection[Status] = (),
    evidence: bool = False,
    capped: bool = False,
    reads: bool = False,
    faithful: bool = False,
    transient: bool = False,
    timed: bool = False,
) -> Callable[[Check], Check]:
    """Register a check as rule `number` of the methodology.

    Args:
        number, severity: fields of the rule.
        of: statuses of the runs to which it applies; empty: any.
        evidence: whether it applies only to records with evidence.
        capped: whether it applies only to runs under a memory cap that the host
            enforces.
        reads: whether it applies only to runs that read features.
        faithful: whether it applies only to runs whose mini-batches have to equal the
            workload's.
        transient: whether other activity on the host can break it, so that the same run
            may keep it when repeated.
        timed: whether it holds clocks of the worker and the orchestrator against each
            other, which proves nothing where either waited: it is then part of the
            reasons why the run is SPOILT.
    """

    def register(check: Check) -> Check:
        @wraps(check)
        def where_it_applies(record: Record, context: RunContext) -> Finding | None:
            applies = (
                (not of or record.status in of)
                and (not evidence or record.evidence is not None)
                and (
                    not capped
                    or (
                        record.memory.cap_bytes is not None
                        and record.readings.proves_memory
                    )
                )
                and (not reads or record.config.stages != "sample")
                and (not faithful or record.readings.faithful)
            )
            return check(record, context) if applies else None

        _RULES.append(Rule(number, severity, transient, timed, where_it_applies))
        return where_it_applies

    return register


def rules() -> list[Rule]:
    """Return every rule, in the methodology's order."""
    return sorted(
        _RULES,
        key=lambda entry: (int("".join(filter(str.isdigit, entry.number))), entry.name),
    )


def spoilt(record: Record) -> bool:
    """Return whether a finished run is excluded only by rules that other activity
    broke: repeating it may help."""
    broken = {
        outcome.name
        for outcome in record.verdict_rules
        if not outcome.ok and outcome.known
    }
    excluding = [
        entry
        for entry in _RULES
        if entry.severity not in COUNTED and entry.name in broken
    ]
    transient = all(entry.transient or entry.timed for entry in excluding)
    return record.status == "ok" and record.verdict not in COUNTED and transient


def broken_by_the_system(record: Record) -> dict[str, Verdict]:
    """Return the rules that a run breaks and that other activity on the host cannot
    break, with the verdict of each."""
    entries = {entry.name: entry for entry in _RULES if not entry.transient}
    broken = [
        outcome
        for outcome in record.verdict_rules
        if not outcome.ok and outcome.name in entries
    ]
    return {
        outcome.name: entries[outcome.name].severity if outcome.known else "CAVEATS"
        for outcome in broken
    }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of the verdicts; VALID without any."""
    return max(verdicts, key=_WEIGHT.index, default="VALID")


def judged_anew(record: Record, unsealed: str) -> Record:
    """Judge a record again by its own evidence; `unsealed` is the reason why its seal
    is broken, empty if intact.

    A record of an older version has no evidence: its verdict stays, and is CAVEATS at
    best.
    """
    if record.evidence is not None:
        record.verdict, record.verdict_rules = judge(
            record, context_of(record, unsealed)
        )
        return record
    kept = next(entry for entry in _RULES if entry.name == "evidence_is_kept")
    if outcome := kept.outcome(record, context_of(record)):
        record.verdict_rules = [
            *(one for one in record.verdict_rules if one.name != kept.name),
            outcome,
        ]
    record.verdict = "CAVEATS" if record.verdict == "VALID" else record.verdict
    return record


def judge(
    record: Record, context: RunContext | None = None
) -> tuple[Verdict, list[RuleOutcome]]:
    """Return the verdict and the outcome of each rule that applies, from the record's
    own evidence.

    `INVALID` if an invalidating rule is broken or the run failed; else `SPOILT` if
    other programs took so much of the machine that the times are meaningless; else
    `CAVEATS` if another rule is broken or cannot be judged; else `VALID`. A rule that
    compares clocks does not invalidate a run that is SPOILT, since the processes with
    the clocks waited.
    """
    context = context or context_of(record)
    judged = [
        (entry, outcome)
        for entry in rules()
        if (outcome := entry.outcome(record, context))
    ]
    broken = [(entry, outcome) for entry, outcome in judged if not outcome.ok]
    is_spoilt = any(
        entry.severity == "SPOILT" and outcome.known for entry, outcome in broken
    )
    verdicts = [_weight(entry, outcome, is_spoilt) for entry, outcome in broken]
    return worst(verdicts), [outcome for _, outcome in judged]


def _weight(entry: Rule, outcome: RuleOutcome, is_spoilt: bool) -> Verdict:
    """Return the verdict that a broken rule alone gives."""
    if not outcome.known:
        return "CAVEATS"
    return "SPOILT" if is_spoilt and entry.timed else entry.severity
