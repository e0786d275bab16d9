"""The report: everything that was measured under one results root, in one HTML file that needs nothing else."""

from harness.report.write import Written, write_report

__all__ = ["Written", "write_report"]
