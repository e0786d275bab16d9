"""The report: all measurements of one results root in one self-contained HTML file."""

from harness.report.write import Written, write_report

__all__ = ["Written", "write_report"]
