"""Files of an export that `torch.load` reads, written as streams: their tensors may
exceed memory."""

from __future__ import annotations

import io
import math
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, cast

from workloads.exporters.files import Output, Values

_TORCH_BYTES = 4096  # of a file of torch besides its values


@dataclass(frozen=True)
class TorchFile:
    """File that `torch.load` reads, written as a stream: its tensors may exceed memory.

    Attributes:
        content: object of plain data; `Values` in it become tensors.
        renamed: class of a stand-in in `content` -> module and name by which the reader
            knows it.
    """

    name: str
    content: Any
    renamed: Mapping[type, tuple[str, str]] = field(default_factory=dict)

    def _pickled(self) -> tuple[bytes, list[Values]]:
        """Return the pickled content, and its tensors in the order of their numbers."""
        stream = io.BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(self.content)
        data = stream.getvalue()
        for kind, (module, name) in {**_TORCH, **self.renamed}.items():
            # Protocol 2 names a class by two lines of text.
            stand_in = f"c{kind.__module__}\n{kind.__qualname__}\n"
            known = f"c{module}\n{name}\n"
            data = data.replace(stand_in.encode(), known.encode())
        return data, pickler.tensors

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors and of a small rest."""
        return _TORCH_BYTES + sum(values.nbytes for values in self._pickled()[1])

    def write(self, out: Output) -> None:
        """Write the content: an archive whose members have their checksums behind them,
        since it cannot be sought."""
        data, tensors = self._pickled()
        with zipfile.ZipFile(cast(IO[bytes], out), "w") as archive:
            # Members of the same date in every export: a graph has the same bytes
            # whenever it is exported.
            archive.writestr(zipfile.ZipInfo("archive/data.pkl"), data)
            archive.writestr(zipfile.ZipInfo("archive/byteorder"), sys.byteorder)
            for number, values in enumerate(tensors):
                info = zipfile.ZipInfo(f"archive/data/{number}")
                info.file_size = values.nbytes
                with archive.open(info, "w") as member:
                    values.write(member)
            archive.writestr(zipfile.ZipInfo("archive/version"), "3\n")


@dataclass(frozen=True, eq=False)
class _Storage:
    """Memory of a tensor, which a pickle of torch names by a number."""

    values: Values


class _Ints:
    """Stand-in of torch's class of int32 memory: torch itself, 130 MiB in memory, is
    not needed to name it."""


class _Longs:
    """Stand-in of torch's class of int64 memory."""


class _Floats:
    """Stand-in of torch's class of float32 memory."""


def _tensor() -> None:
    """Stand in for torch's function that makes a tensor."""


_STORAGES: dict[str, type] = {"int32": _Ints, "int64": _Longs, "float32": _Floats}
_TORCH: dict[Any, tuple[str, str]] = {
    _Ints: ("torch", "IntStorage"),
    _Longs: ("torch", "LongStorage"),
    _Floats: ("torch", "FloatStorage"),
    _tensor: ("torch._utils", "_rebuild_tensor_v2"),
}


class _Pickler(pickle.Pickler):
    """Pickler in the words of `torch.save`."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=2)
        self.tensors: list[Values] = []

    def reducer_override(self, value: Any) -> Any:
        """Return the call that makes a tensor of `Values`; other objects are pickled as
        usual."""
        if not isinstance(value, Values):
            return NotImplemented
        axes = range(1, len(value.shape) + 1)
        strides = tuple(math.prod(value.shape[axis:]) for axis in axes)
        return _tensor, (_Storage(value), 0, value.shape, strides, False, OrderedDict())

    def persistent_id(self, value: Any) -> Any:
        """Return the name of a tensor's memory; None for other objects."""
        if not isinstance(value, _Storage):
            return None
        self.tensors.append(value.values)
        return (
            "storage",
            _STORAGES[value.values.dtype],
            str(len(self.tensors) - 1),
            "cpu",
            value.values.count,
        )
