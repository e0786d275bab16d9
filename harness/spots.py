"""Spot checks of features (methodology rule 26): which rows of which mini-batches, and what is told of them.

The orchestrator draws a number when an epoch's gate opens, so nothing that was built before knows which mini-batches
and rows it will be asked for. Worker and orchestrator derive them from it alike.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from systems.interface import Batch

NONCE_BYTES = 8
# A system that serves one row in a hundred wrongly passes four mini-batches of so many rows once in a hundred epochs.
BATCHES = 4
ROWS = 128
# Rows whose values are told, where sums in another order may differ in the last digits.
VALUES = 8


@dataclass(frozen=True)
class Spot:
    """What a worker says of the rows that one mini-batch was trained on.

    Attributes:
        epoch, batch: which mini-batch; `batch` is numbered over all ranks once ranks are joined.
        nodes: original ids of the rows looked at.
        digest: over their bytes; empty where values are told.
        values: the first rows themselves, where the first layer is aggregated beforehand.
    """

    epoch: int
    batch: int
    nodes: tuple[int, ...]
    digest: str
    values: tuple[tuple[float, ...], ...] = ()


def chosen(nonce: bytes, epoch: int, num_batches: int) -> frozenset[int]:
    """Indices of the mini-batches of a rank that are looked at."""
    draw = random.Random(nonce + epoch.to_bytes(8, "little"))
    return frozenset(draw.sample(range(num_batches), min(BATCHES, num_batches)))


def positions(nonce: bytes, epoch: int, batch: int, num_nodes: int) -> npt.NDArray[np.int64]:
    """Which nodes of a mini-batch are looked at, int64 [k]; each once."""
    seed = hashlib.blake2b(nonce + epoch.to_bytes(8, "little") + batch.to_bytes(8, "little"), digest_size=8).digest()
    draw = random.Random(seed)
    return np.array(draw.sample(range(num_nodes), min(ROWS, num_nodes)), dtype=np.int64)


def look_at(batch: Batch, nonce: bytes) -> Spot:
    """The rows of a mini-batch that the number asks for, from the very table that training reads."""
    import torch

    from workloads.feature_table import SplitTable

    assert batch.table is not None
    sampled, table = batch.sampled, batch.table
    places = positions(nonce, sampled.epoch, sampled.index, sampled.num_nodes)
    at = torch.from_numpy(places)
    rows = at if batch.rows is None else batch.rows.cpu()[at]
    if isinstance(table, SplitTable):
        found = table.take(rows)
    else:
        found = torch.index_select(table, 0, rows.to(table.device)).cpu()
    nodes = sampled.nodes[places]
    told = tuple(int(node) for node in nodes)
    if batch.first_layer_aggregated:
        return Spot(
            sampled.epoch, sampled.index, told, "", tuple(tuple(row.tolist()) for row in found[:VALUES].float())
        )
    return Spot(sampled.epoch, sampled.index, told, rows_digest(nodes, found.numpy()))


def rows_digest(nodes: npt.NDArray[np.int64], rows: npt.NDArray[Any]) -> str:
    """Digest of rows [k, dim] with the ids of their nodes, 16 hex digits."""
    digest = hashlib.blake2b(np.ascontiguousarray(nodes, dtype="<i8").tobytes(), digest_size=8)
    digest.update(f"{rows.dtype.str}{list(rows.shape)}".encode())
    digest.update(np.ascontiguousarray(rows).tobytes())
    return digest.hexdigest()
