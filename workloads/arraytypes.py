"""Types of NumPy arrays by their elements, and of plain data, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
IntegerArray = npt.NDArray[np.integer]
UInt8Array = npt.NDArray[np.uint8]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
DType = np.dtype[Any]
ArrayShape = tuple[int, ...]
ArrayStream = Callable[[], Iterator[Array]]
"""Function that yields an array in chunks; it can be called more than once."""
IdStream = Callable[[], Iterator[Int64Array]]
"""Function that yields ids in chunks; it can be called more than once."""
JsonDict = dict[str, Any]
"""Object of JSON as Python reads it."""
