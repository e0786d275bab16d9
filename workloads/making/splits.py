"""Draw of the train, valid and test nodes in bounded memory: exact shares, a function of the seed alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError
from workloads.making.writer import DatasetWriter

_CHUNK = 1 << 20
_STREAM = 0x73706C6974  # keeps these draws apart from others of the same seed

IntArray = npt.NDArray[np.int64]


def check_fractions(train: float, valid: float, test: float) -> None:
    """Check the shares of train, valid and test.

    Raises:
        InputError: a share is outside [0, 1], train is 0, or they exceed 1 together.
    """
    for name, value in (("train", train), ("valid", valid), ("test", test)):
        if not 0 <= value <= 1:
            raise InputError(f"--{name}-fraction is {value}, which is not in [0, 1]", "give a share like 0.01")
    if train == 0:
        raise InputError("--train-fraction is 0, so that nothing could be trained", "give a share like 0.01")
    if train + valid + test > 1 + 1e-9:
        raise InputError(
            f"--train-fraction, --valid-fraction and --test-fraction are {train + valid + test:g} together",
            "stay below 1",
        )


def draw_splits(labels: IntArray, fractions: tuple[float, float, float], seed: int) -> Iterator[tuple[IntArray, ...]]:
    """Draw ascending ids of train, valid and test among the labelled nodes, for some nodes at a time.

    `labels` is int64 [N] (may be memory-mapped), -1 for unlabelled; `fractions` are shares of the labelled nodes.
    """
    bounds = np.cumsum(fractions)
    seen = 0
    given = np.zeros(3, dtype=np.int64)
    for start in range(0, labels.shape[0], _CHUNK):
        known = start + np.flatnonzero(np.asarray(labels[start : start + _CHUNK]) >= 0)
        random = np.random.default_rng([_STREAM, seed, start // _CHUNK])
        order = random.permutation(known)
        seen += known.shape[0]
        # The wanted number grows with the labelled nodes seen, so the shares hold over the whole graph.
        wanted = np.diff(np.rint(bounds * seen).astype(np.int64), prepend=0)
        wanted[0] = max(wanted[0], min(1, seen))
        ends = np.minimum(np.cumsum(np.maximum(wanted - given, 0)), known.shape[0])
        begins = np.concatenate([[0], ends[:-1]])
        given += ends - begins
        yield tuple(np.sort(order[begin:end]) for begin, end in zip(begins, ends, strict=True))


def write_splits(writer: DatasetWriter, labels: IntArray, fractions: tuple[float, float, float], seed: int) -> None:
    """Draw the splits by `draw_splits` and write `train`, `valid` and `test`.

    Raises:
        InputError: no node has a label.
    """
    chunks = zip(*draw_splits(labels, fractions, seed), strict=True)
    train, valid, test = (np.concatenate(part).astype(np.int64) for part in chunks)
    if train.shape[0] == 0:
        raise InputError("no node has a label, so there is nothing to train on", "use --labels random or homophilous")
    writer.write("train", train)
    writer.write("valid", valid)
    writer.write("test", test)
