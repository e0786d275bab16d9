"""Components that systems share: direct-I/O reader, parallel gather, page cache, GNNDrive's feature buffer."""

from systems.engine.feature_buffer import (
    Acquired,
    FeatureBuffer,
    FeatureBufferClosed,
    FeatureBufferTimeout,
    LoaderFailed,
)
from systems.engine.gather import gather
from systems.engine.memory import aligned_empty, evict, madvise, resident_bytes
from systems.engine.reader import Group, ReadStats, RowReader
from systems.engine.stream import Piece, stream

__all__ = [
    "Acquired",
    "FeatureBuffer",
    "FeatureBufferClosed",
    "FeatureBufferTimeout",
    "Group",
    "LoaderFailed",
    "Piece",
    "ReadStats",
    "RowReader",
    "aligned_empty",
    "evict",
    "gather",
    "madvise",
    "resident_bytes",
    "stream",
]
