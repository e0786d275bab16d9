"""Systems that sample by passes over the graph count useful bytes of neighbours that
they read, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import make_tiny
from tests.systems.support_systems import run, running, workload_of


@pytest.mark.parametrize("name", ["agnes", "outcore"])
def test_neighbours_that_were_not_read_are_no_useful_bytes(
    name: str, tmp_path: Path
) -> None:
    """A layer-wise sampler looks at whole neighbour lists, in memory: none of them is
    read by the system."""
    dataset = make_tiny(tmp_path / "d", nodes=4000, edges=100_000, dim=1)
    workload = workload_of(dataset, batch_size=10, fanout=(100, 100), name="layerwise")
    with running(name, workload) as system:
        run(system, 0)
        counters = system.counters()
    assert counters.observed["graph_bytes_read"] == 0
    assert (
        counters.bytes_useful
        == counters.misses * dataset.row_bytes
        <= counters.bytes_read
    )
