"""Telemetry of the host, the cap, the disk and the GPU, sampled from outside the cap."""

from harness.telemetry.frame import COLUMNS, align, at_peak, with_busy_lanes
from harness.telemetry.recorder import Recorder
from harness.telemetry.sources import Sample

__all__ = ["COLUMNS", "Recorder", "Sample", "align", "at_peak", "with_busy_lanes"]
