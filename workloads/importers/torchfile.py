"""Node ids of the train, valid and test splits in a `split_dict.pt`, read without running code from the file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import DatasetError
from workloads.importers.source import reading


def _array_types() -> list[Any]:
    """List the types of pickled integer arrays: torch's list of harmless types lacks numpy's."""
    rebuild = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    numbers = [type(np.dtype(name)) for name in ("int64", "int32", "uint32", "uint64")]
    return [rebuild, (rebuild, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, *numbers]


def load_splits(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    """Load the `train`, `valid` and `test` ids (int64) of a torch file with a dictionary of arrays or tensors.

    OGB-LSC names its test ids `test`, later releases `test-whole`, or `test-dev` and `test-challenge`.

    Raises:
        DatasetError: the file is missing, damaged, or holds anything but numbers.
    """
    import torch  # late: it takes seconds and 200 MB, and other importers do without

    damage = (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError)
    with reading(path, "cannot be read safely", damage), torch.serialization.safe_globals(_array_types()):
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict):
        raise DatasetError(f"{path} holds no dictionary of splits", "download it again")
    parts: dict[str, list[str]] = {"train": ["train"], "valid": ["valid"], "test": []}
    for names in (["test"], ["test-whole"], ["test-dev", "test-challenge"]):
        if all(name in content for name in names):
            parts["test"] = names
            break
    splits = {}
    for part, names in parts.items():
        if not names or any(name not in content for name in names):
            raise DatasetError(f"{path} holds no {part} ids", "download it again")
        splits[part] = np.concatenate([np.asarray(content[name]).reshape(-1) for name in names]).astype(np.int64)
    return splits
