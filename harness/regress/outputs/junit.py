"""A comparison as JUnit XML with one test case per metric: *regressed* fails, *undecided* is skipped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from harness.regress.decision import Comparison, MetricResult
from harness.regress.outputs.words import change, value, why

# Characters that XML 1.0 forbids.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(found: Comparison) -> str:
    """Render a comparison as one test suite."""
    gated = [metric for metric in found.metrics if metric.gates]
    suite = ET.Element(
        "testsuite",
        name="outcore regress",
        tests=str(len(found.metrics)),
        errors="0",
        failures=str(sum(metric.decision == "regressed" for metric in gated)),
        skipped=str(sum(_is_skipped(metric) for metric in found.metrics)),
        time=f"{float(found.details.get('seconds', 0.0)):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, text in (("base", found.base), ("head", found.head), ("decision", found.decision)):
        ET.SubElement(properties, "property", name=name, value=_clean(text))
    for metric in found.metrics:
        _case(suite, metric)
    if found.notes:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(found.notes))
    root = ET.Element("testsuites", name="outcore")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _is_skipped(metric: MetricResult) -> bool:
    return metric.decision == "undecided" or (not metric.gates and metric.decision == "regressed")


def _case(suite: ET.Element, metric: MetricResult) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(f"outcore.{metric.cell}"), name=_clean(metric.name))
    said = f"{value(metric, metric.base)} -> {value(metric, metric.head)}, {change(metric)}"
    said = _clean("; ".join(part for part in (said, why(metric)) if part))
    if metric.decision == "regressed" and metric.gates:
        ET.SubElement(case, "failure", type="regressed", message=said).text = said
    elif _is_skipped(metric):
        ET.SubElement(case, "skipped", message=said)
    else:
        ET.SubElement(case, "system-out").text = f"{metric.decision}: {said}"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
