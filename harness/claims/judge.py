"""The verdict on a claim: published value, our measurement in the declared setting,
their distance; explanations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.claims.declared import DeclaredRuns
from harness.claims.measured import Measured, NotRun
from harness.claims.published import (
    Claim,
    Verdict,
    claims,
    direction,
    find_claim,
    verdict_of,
)
from harness.claims.registry import answers
from harness.compare.verdicts import NotDrawn, with_uncounted
from harness.figures.draw.captions import graph_size
from harness.progress import Notice, silent, tracked
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence


_COPIED = ("id", "paper", "claim", "condition", "unit", "tolerance", "read", "figure")


@dataclass(frozen=True)
class Judged:
    """One claim with its verdict.

    Attributes:
        paper_value: published value with its bound, as `at least 35`.
        profile, setting: bench profile, and the claim's selection of its runs.
        certain: whether both ends of the interval give the same verdict.
    """

    id: str
    paper: str
    claim: str
    condition: str
    verdict: Verdict
    paper_value: str
    unit: str
    tolerance: str
    read: str
    figure: str
    profile: str
    setting: str
    measured: float | None = None
    interval: list[float] | None = None
    interval_kind: str = ""
    certain: bool = True
    reason: str = ""
    found: Measured | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without the parts that only `--explain` shows."""
        content = asdict(self)
        del content["found"]
        return content


def judge_all(
    evidence: Evidence, profile: JsonDict | None = None, progress: Notice = silent
) -> list[Judged]:
    """Judge every published claim, in the file's order; the claims declare runs of
    `profile` (default: `quick`)."""
    declared = DeclaredRuns(evidence, profile)
    every = tracked(progress, list(claims().values()), "judging claims", "claims")
    return [_judge(claim, declared) for claim in every]


def judge_one(id_: str, evidence: Evidence, profile: JsonDict | None = None) -> Judged:
    """Judge one claim.

    Raises:
        InputError: no claim has this id.
    """
    return _judge(find_claim(id_), DeclaredRuns(evidence, profile))


def _judge(claim: Claim, declared: DeclaredRuns) -> Judged:
    own: dict[str, Any] = {name: getattr(claim, name) for name in _COPIED}
    own |= {
        "paper_value": claim.published,
        "profile": declared.name,
        "setting": declared.setting(claim),
    }
    judged = Judged(**own, verdict="not run", reason=claim.not_run)
    if claim.not_run:
        return judged
    records = declared.records(claim)
    try:
        found = answers()[claim.id](records)
    except (NotRun, NotDrawn) as reason:
        text = with_uncounted(reason, records.uncounted)
        hint = (
            ""
            if records.evidence.records
            else f"; {declared.how(claim)} makes the runs"
        )
        return replace(judged, reason=text + hint)
    number = found.number
    verdict = verdict_of(claim, number.value)
    certain = verdict == verdict_of(claim, number.low) == verdict_of(claim, number.high)
    if claim.emulated and str(found.setting.get("device", "")).startswith("emulated:"):
        verdict = "emulated"
        certain = True
    words = _reason(claim, verdict, number.value, certain=certain)
    judged = replace(
        judged, verdict=verdict, certain=certain, reason=words, found=found
    )
    return replace(
        judged,
        measured=number.value,
        interval=[number.low, number.high],
        interval_kind=number.kind,
    )


def _reason(claim: Claim, verdict: Verdict, seen: float, *, certain: bool) -> str:
    if verdict == "emulated":
        return (
            "the emulated device's coefficients decide it; on a real one it would be "
            "judged"
        )
    unit = "times" if claim.unit == "x" else claim.unit
    measured = f"{number_text(seen)} {unit}".strip()
    paper = f"{claim.published} {unit}".strip()
    reason = (
        f"measured {measured}, published {paper}: {_compared(claim, verdict, seen)}"
    )
    return reason if certain else f"{reason}; the interval reaches another verdict"


def _compared(claim: Claim, verdict: Verdict, seen: float) -> str:
    """Say how far the measured number is from the published one."""
    allowed = claim.tolerance.replace("factor", "a factor of")
    if verdict == "reproduced":
        return "as published" if claim.is_interval else f"within {allowed}"
    if not direction(claim, seen):
        return f"the opposite direction, on the other side of {claim.neutral}"
    if not claim.tolerance:
        return "outside the published range"
    if verdict == "direction only":
        return f"off by more than {allowed}, less than twice that"
    return f"off by more than twice the tolerance ({allowed})"


_READ = {
    "text": "as printed",
    "computed": "computed from printed numbers",
    "plot": "read off a plot",
    "words": "stated in words, not as a number",
}


def explain(judged: Judged) -> list[str]:
    """Return the lines that explain a verdict, most important first."""
    claim = find_claim(judged.id)
    source = f"{claim.where}; {claim.condition}; {_READ[claim.read]}"
    tolerance = judged.tolerance or "none"
    lines = [f"{judged.id} ({judged.paper}): {judged.claim}"]
    lines.append(
        f"paper: {judged.paper_value} {judged.unit} ({source}; tolerance {tolerance})"
    )
    lines.append(f"judged in: {judged.setting}")
    lines.append(f"ours: {measured_text(judged)}")
    lines.append(": ".join(filter(None, ["verdict", judged.verdict, judged.reason])))
    found = judged.found
    if found is None:
        return lines
    lines += [f"  {line}" for line in found.detail]
    differences = [*setting_lines(dict(found.setting)), claim.differs]
    lines += [f"differs from the paper: {line}" for line in differences if line]
    for name, sources in (("studies", found.studies), ("runs", found.runs)):
        if sources:
            lines.append(f"{name}: {', '.join(sources)}")
    return lines


def published_text(judged: Judged) -> str:
    """Format the published value with its unit."""
    return f"{judged.paper_value} {judged.unit}".strip()


def measured_text(judged: Judged) -> str:
    """Format the measured number with unit and interval; a dash where nothing was
    measured."""
    if judged.measured is None:
        return "–"
    number = f"{number_text(judged.measured)} {judged.unit}".strip()
    return number + _interval_text(judged)


def _interval_text(judged: Judged) -> str:
    """Format the interval of the measured number as ` [11–13, 95 %]`; empty where there
    is none."""
    low, high = judged.interval or (0, 0)
    if low == high:
        return ""
    kind = "95 %" if judged.interval_kind == "bootstrap95" else judged.interval_kind
    return f" [{number_text(low)}–{number_text(high)}, {kind}]"


def setting_lines(config: dict[str, Any]) -> list[str]:
    """Describe scale, device, cap and disk of our runs, one line each."""
    lines = []
    if data := config.get("dataset"):
        size = graph_size(data["num_nodes"], data["num_edges"])
        lines.append(f"dataset {data['name']}: {size}, dimension {data['dim']}")
    batches = []
    if "batch_size" in config:
        batches.append(f"mini-batches of {config['batch_size']}")
    if config.get("max_batches"):
        batches.append(f"{config['max_batches']} of them an epoch")
    lines.append(", ".join(batches))
    if "device" in config:
        emulated = " (EMULATED)" if config["device"].startswith("emulated:") else ""
        memory = config.get("device_memory_bytes")
        size = f" with {format_bytes(memory)}" if memory else ""
        lines.append(f"device {config['device']}{emulated}{size}")
    if "memory" in config:
        lines.append(
            "no memory cap"
            if config["memory"] == "none"
            else f"memory {config['memory']}"
        )
    if "disk_class" in config:
        name = config["disk_class"]
        lines.append(
            "the bare disk of this host"
            if name == "none"
            else f"disk limited to the class {name}"
        )
    return [line for line in lines if line]


def number_text(value: float) -> str:
    """Format a number with 3 significant digits, or without decimals from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
