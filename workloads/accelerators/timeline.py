"""Busy spans of a CUDA device, from pairs of CUDA events, on the monotonic clock."""

from __future__ import annotations

import threading
import time
from collections import deque

import torch
from torch import Tensor

from workloads.accelerator import Event, LaneSpan


def _timed_event() -> torch.cuda.Event:
    """Return an event that has a time, and whose waiter sleeps instead of spinning."""
    return torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]


class _Anchor:
    """An event of the device, and the monotonic second at which it happened."""

    def __init__(self, device: torch.device) -> None:
        self._event = _timed_event()
        self._event.record(torch.cuda.current_stream(device))
        self._event.synchronize()
        self._at = time.monotonic()

    def moment(self, event: torch.cuda.Event) -> float:
        """Return the monotonic second of a completed event."""
        return self._at + float(self._event.elapsed_time(event)) / 1e3


class OpenSpan:
    """Work under way on one lane: from `begin`, recorded when it is made, to `end`,
    recorded by `close`."""

    def __init__(
        self, anchor: _Anchor, lane: str, batch: int, stream: torch.cuda.Stream
    ) -> None:
        self._anchor = anchor
        self._lane = lane
        self._batch = batch
        self.begin = _timed_event()
        self.end = _timed_event()
        self.begin.record(stream)

    def close(self, stream: torch.cuda.Stream) -> None:
        """Record the end on `stream`."""
        self.end.record(stream)

    def done(self) -> bool:
        """Return whether the work is complete."""
        return bool(self.end.query())  # type: ignore[no-untyped-call]

    def measured(self) -> LaneSpan:
        """Return the span of completed work."""
        return LaneSpan(
            self._lane,
            self._batch,
            self._anchor.moment(self.begin),
            self._anchor.moment(self.end),
        )


class Timeline:
    """Collector of a device's busy spans. Any thread may call it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._open: deque[OpenSpan] = deque()
        self._spans: list[LaneSpan] = []
        self._anchor = _Anchor(device)

    def open(self, lane: str, batch: int, stream: torch.cuda.Stream) -> OpenSpan:
        """Begin a span where `stream` is now."""
        return OpenSpan(self._anchor, lane, batch, stream)

    def close(self, span: OpenSpan, stream: torch.cuda.Stream) -> None:
        """End the span where `stream` is now; measure earlier spans that are complete,
        so that few events exist."""
        span.close(stream)
        with self._lock:
            self._open.append(span)
            while self._open and self._open[0].done():
                self._spans.append(self._open.popleft().measured())

    def drain(self) -> list[LaneSpan]:
        """Wait for all spans; return those since the last call, oldest first."""
        with self._lock:
            for span in self._open:
                span.end.synchronize()
            found = [*self._spans, *(span.measured() for span in self._open)]
            self._spans = []
            self._open = deque()
            # The two clocks drift apart: take their difference anew.
            self._anchor = _Anchor(self._device)
        return sorted(found, key=lambda span: span.start)


class CudaEvent(Event):
    """Completion of a copy or a gather. `wait` blocks the caller, not the device; it
    sleeps and releases the GIL."""

    def __init__(self, event: torch.cuda.Event, *sources: Tensor) -> None:
        self._event = event
        self._sources = sources  # have to live until the device has read them

    def wait(self) -> None:
        """Wait until the work is done."""
        self._event.synchronize()
        self._sources = ()

    def done(self) -> bool:
        """Return whether the work is done."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]
