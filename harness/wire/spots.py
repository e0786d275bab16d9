"""Spot checks of features (methodology rule 26): choice of mini-batches and feature
rows, and their report. The orchestrator draws a number when an epoch's gate opens, so
no earlier preparation can know the mini-batches and rows to be checked. Worker and
orchestrator both derive them from this number."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

if TYPE_CHECKING:
    from systems.interface import Batch

NONCE_BYTES = 8
# With one wrong row in a hundred, or half of the mini-batches wrong, an epoch passes
# once in a hundred times.
BATCHES = 8
ROWS = 64
# number of rows reported by value, where sums in another order may differ in the last
# digits
VALUES = 8
_Id = Annotated[int, Field(ge=0, lt=2**62)]


class Spot(NamedTuple):
    """A worker's report of the feature rows that one mini-batch was trained on.
    `batch`: number of the mini-batch, over all ranks once these are joined. `nodes`:
    original node ids of the rows. `digest`: digest of the rows' bytes; empty with
    `values`, the first `VALUES` rows, reported if the first layer is aggregated
    beforehand."""

    batch: _Id
    nodes: tuple[_Id, ...]
    digest: str
    values: tuple[tuple[float, ...], ...] = ()


def chosen(nonce: bytes, epoch: int, num_batches: int) -> frozenset[int]:
    """Return the indices of a rank's mini-batches to check."""
    draw = random.Random(nonce + epoch.to_bytes(8, "little"))
    return frozenset(draw.sample(range(num_batches), min(BATCHES, num_batches)))


def positions(
    nonce: bytes, epoch: int, batch: int, num_nodes: int
) -> npt.NDArray[np.int64]:
    """Return the distinct positions, int64 [k], of a mini-batch's nodes to check.

    Args:
        nonce, epoch: number drawn for the epoch, number of the epoch.
        batch, num_nodes: index of the mini-batch, number of its nodes.
    """
    seed = hashlib.blake2b(
        nonce + epoch.to_bytes(8, "little") + batch.to_bytes(8, "little"), digest_size=8
    ).digest()
    draw = random.Random(seed)
    return np.array(draw.sample(range(num_nodes), min(ROWS, num_nodes)), dtype=np.int64)


def look_at(batch: Batch, nonce: bytes) -> Spot:
    """Report the rows of a mini-batch that `nonce` selects, from the table that
    training reads."""
    import torch

    from workloads.feature_table import SplitTable

    assert batch.table is not None
    sampled = batch.sampled
    table = batch.table
    places = positions(nonce, sampled.epoch, sampled.index, sampled.num_nodes)
    at = torch.from_numpy(places)
    rows = at if batch.rows is None else batch.rows.cpu()[at]
    found = (
        table.take(rows)
        if isinstance(table, SplitTable)
        else table.index_select(0, rows.to(table.device)).cpu()
    )
    nodes = sampled.nodes[places]
    reported = tuple(nodes.tolist())
    if batch.first_layer_aggregated:
        return Spot(
            sampled.index,
            reported,
            "",
            tuple(tuple(row.tolist()) for row in found[:VALUES].float()),
        )
    return Spot(sampled.index, reported, rows_digest(nodes, found.numpy()))


def rows_digest(nodes: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> str:
    """Return the digest of rows [k, dim] with the ids of their nodes, 16 hex digits."""
    digest = hashlib.blake2b(
        np.ascontiguousarray(nodes, dtype="<i8").tobytes(), digest_size=8
    )
    digest.update(f"{rows.dtype.str}{list(rows.shape)}".encode())
    digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()
