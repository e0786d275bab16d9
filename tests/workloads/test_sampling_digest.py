"""Digests: equal for equal bytes in any place, different for any change, and the same
in every version."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from workloads.errors import InputError
from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.neighbor import NeighborSampler

RNG = np.random.default_rng(0)
INDPTR = np.arange(0, 3001 * 10, 10)
BATCH = NeighborSampler(INDPTR, RNG.integers(0, 3000, 30_000), [5, 5], seed=1).sample(
    2, 3, np.arange(100)
)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def changed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = array.copy()
    copy[len(copy) // 2] += 1
    return copy


def test_the_structure_digest_is_the_same_for_ever() -> None:
    block = Block(np.array([0, 2, 3]), np.array([2, 0, 1], dtype=np.int32), 3, 2)
    batch = SampledBatch(4, 5, np.array([10, 7, 12]), 2, (block,), np.array([1, 0]))
    hashed = words(4, 5, 2, 3, 1) + words(10, 7, 12) + words(3, 2, 3) + words(0, 2, 3)
    hashed += struct.pack("<3i", 2, 0, 1) + words(2) + words(1, 0)
    assert (
        structure_digest(batch)
        == xxhash.xxh3_64_intdigest(hashed)
        == 0x9B50A46F8008C922
    )


def test_the_feature_digest_is_the_same_for_ever() -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    batch = SampledBatch(4, 5, np.array([10, 7, 12]), 2, (), np.array([1, 0]))
    hashed = words(4, 5, 3, 2, 4) + struct.pack("<6f", *range(6))
    assert (
        feature_digest(batch, table)
        == xxhash.xxh3_64_intdigest(hashed)
        == 0xFA18C6D37CAC9EA3
    )


@pytest.mark.parametrize(
    "part",
    ["epoch", "index", "nodes", "labels", "indptr", "indices", "num_src", "order"],
)
def test_any_change_of_structure_changes_the_digest(part: str) -> None:
    first = BATCH.blocks[0]
    other = {
        "epoch": lambda: replace(BATCH, epoch=3),
        "index": lambda: replace(BATCH, index=4),
        "nodes": lambda: replace(BATCH, nodes=changed(BATCH.nodes)),
        "labels": lambda: replace(BATCH, labels=changed(BATCH.labels)),
        "indptr": lambda: replace(
            BATCH,
            blocks=(replace(first, indptr=changed(first.indptr)), *BATCH.blocks[1:]),
        ),
        "indices": lambda: replace(
            BATCH,
            blocks=(replace(first, indices=changed(first.indices)), *BATCH.blocks[1:]),
        ),
        "num_src": lambda: replace(
            BATCH, blocks=(replace(first, num_src=first.num_src + 1), *BATCH.blocks[1:])
        ),
        "order": lambda: replace(BATCH, blocks=BATCH.blocks[::-1]),
    }[part]()
    assert structure_digest(other) != structure_digest(BATCH)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dim", [1, 16, 1000])
def test_features_have_one_digest_wherever_the_rows_lie(dtype: type, dim: int) -> None:
    features = RNG.random((3000, dim), dtype=np.float32).astype(dtype)
    in_order = features[BATCH.nodes]
    slots = RNG.permutation(2 * BATCH.num_nodes)[: BATCH.num_nodes]
    buffer = np.full((2 * BATCH.num_nodes, dim), 9, dtype=dtype)
    buffer[slots] = in_order
    digest = feature_digest(BATCH, in_order)
    assert digest == feature_digest(BATCH, features, BATCH.nodes)
    assert digest == feature_digest(BATCH, buffer, slots)
    assert digest == feature_digest(BATCH, np.vstack([in_order, in_order]))
    buffer[slots[-1], -1] += 1
    assert digest != feature_digest(BATCH, buffer, slots)


def test_swapped_rows_and_another_dtype_change_the_feature_digest() -> None:
    features = RNG.random((BATCH.num_nodes, 8), dtype=np.float32)
    rows = np.arange(BATCH.num_nodes)
    swapped = rows.copy()
    swapped[[3, 4]] = [4, 3]
    digest = feature_digest(BATCH, features, rows)
    assert digest != feature_digest(BATCH, features, swapped)
    assert digest != feature_digest(BATCH, features.astype(np.float16))
    assert digest != feature_digest(replace(BATCH, index=9), features)


@pytest.mark.parametrize(
    "fault",
    [
        "short table",
        "short rows",
        "row beyond",
        "negative row",
        "float64",
        "one dimension",
    ],
)
def test_tables_that_cannot_hold_the_batch_are_refused(fault: str) -> None:
    table: npt.NDArray[Any] = np.zeros((BATCH.num_nodes, 4), dtype=np.float32)
    rows: npt.NDArray[Any] | None = np.arange(BATCH.num_nodes)
    if fault == "short table":
        table = table[:-1]
        rows = None
    elif fault == "short rows":
        rows = rows[:-1]
    elif fault == "row beyond":
        rows = rows + 1
    elif fault == "negative row":
        rows = rows - 1
    elif fault == "float64":
        table = table.astype(np.float64)
    else:
        table = table.reshape(-1)
    with pytest.raises(InputError):
        feature_digest(BATCH, table, rows)


def test_an_epoch_digest_does_not_depend_on_the_order_of_batches() -> None:
    digests = [int(value) for value in RNG.integers(0, 1 << 64, 100, dtype=np.uint64)]
    forward = EpochDigest()
    backward = EpochDigest()
    other = EpochDigest()
    for digest in digests:
        forward.add(digest)
    for digest in reversed(digests):
        backward.add(digest)
    for digest in [*digests[1:], digests[0] ^ 1]:
        other.add(digest)
    assert (
        forward.hexdigest()
        == backward.hexdigest()
        == f"xxh3:{sum(digests) % (1 << 64):016x}"
    )
    assert other.hexdigest() != forward.hexdigest()
    assert forward.count == 100


def test_a_block_of_other_arrays_has_no_digest() -> None:
    first = BATCH.blocks[0]
    for indices in (first.indices.reshape(1, -1), np.array(["0"])):
        with pytest.raises(TypeError, match="indices are not int32"):
            structure_digest(
                replace(
                    BATCH, blocks=(replace(first, indices=indices), *BATCH.blocks[1:])
                )
            )
