"""Types of NumPy arrays by their elements, for annotations."""

from __future__ import annotations

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
