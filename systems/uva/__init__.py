"""`uva`: features in host memory, which the device reads by zero-copy; no feature row in device memory.

The baseline of Data Tiering (Min et al., KDD 2022): every row crosses the bus when a kernel reads it.
"""

from systems.engine.loading.cached_system import LoaderOptions
from systems.engine.loading.zero_copy import ZeroCopySystem
from systems.interface import SystemInfo


class Uva(ZeroCopySystem):
    """Zero-copy reads of all rows, as with DGL's unified tensors."""

    info = SystemInfo(
        name="uva",
        paper="data-tiering",
        summary="features in host memory, read by the device without copies (zero-copy)",
        options=LoaderOptions,
    )


SYSTEM = Uva
