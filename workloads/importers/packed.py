"""Compressed files and archives, known by their first bytes and not by their names."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workloads.errors import InputError

#: Errors of reading compressed data that are damaged.
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
_HEAD_BYTES = 512
_BUFFER_BYTES = 1 << 16
_MOST_LAYERS = 3  # of nested compression


class _Streams(io.RawIOBase):
    """Concatenated streams of bzip2 or xz; the standard library takes damage to a later
    stream for the file's end."""

    def __init__(self, raw: IO[bytes], decoder: Callable[[], Any]) -> None:
        self._raw = raw
        self._new_decoder = decoder
        self._decoder = decoder()

    def readable(self) -> bool:
        """Return that the stream can be read."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` with the next decompressed bytes; return their number, 0 at the
        end. Raises EOFError for damage."""
        while True:
            packed = b""
            if self._decoder.eof:
                packed = self._next_stream()
                if not packed:
                    return 0
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                packed = self._raw.read(_BUFFER_BYTES)
                if not packed:
                    raise EOFError("the compressed data end too early")
            try:
                data = self._decoder.decompress(packed, len(target))
            except (OSError, lzma.LZMAError) as error:
                raise EOFError(str(error)) from None
            if data:
                target[: len(data)] = data
                return len(data)

    def _next_stream(self) -> bytes:
        """Return the first bytes of the next stream, without the zeros that xz allows
        before it; empty at the end."""
        rest: bytes = self._decoder.unused_data.lstrip(b"\0")
        while not rest:
            data = self._raw.read(_BUFFER_BYTES)
            if not data:
                break
            rest = data.lstrip(b"\0")
        return rest


@dataclass(frozen=True)
class Packing:
    """One kind of compression or archive."""

    name: str
    magic: str  # regular expression of its first bytes
    fix: str  # how to unpack the file PATH
    # None: it has to be unpacked before
    opener: Callable[[IO[bytes]], Any] | None = None


_PACKINGS = (
    Packing(
        "gzip",
        r"\x1f\x8b",
        "gzip -d < PATH > NEW",
        lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ),
    Packing(
        "bzip2",
        r"BZh[1-9](1AY&SY|\x17rE8P\x90)",
        "bzip2 -d < PATH > NEW",
        lambda raw: _Streams(raw, bz2.BZ2Decompressor),
    ),
    Packing(
        "xz",
        r"\xfd7zXZ\x00",
        "xz -d < PATH > NEW",
        lambda raw: _Streams(raw, lzma.LZMADecompressor),
    ),
    Packing("lzma", r"\x5d\x00\x00", "xz --format=lzma -d < PATH > NEW"),
    Packing("lzip", r"LZIP\x01", "lzip -d < PATH > NEW"),
    Packing("lzop", r"\x89LZO\x00", "lzop -d < PATH > NEW"),
    Packing("zstd", r"\x28\xb5\x2f\xfd", "zstd -d PATH -o NEW"),
    Packing("lz4", r"\x04\x22\x4d\x18", "lz4 -d PATH NEW"),
    Packing("compress", r"\x1f\x9d", "gzip -d < PATH > NEW"),
    Packing("zip", r"PK(\x03\x04|\x05\x06|\x07\x08)", "unzip PATH"),
    Packing("7z", r"7z\xbc\xaf\x27\x1c", "7z x PATH"),
    Packing("rar", r"Rar!\x1a\x07", "unrar x PATH"),
    Packing("tar", r".{257}ustar", "tar xf PATH"),
)


def packing_of(head: bytes) -> Packing | None:
    """Return the kind of compression or archive of a file that begins with `head`, if
    it is one."""
    for packing in _PACKINGS:
        if re.match(packing.magic.encode("latin1"), head, re.DOTALL):
            return packing
    return None


def file_packing(path: Path) -> Packing | None:
    """Return the kind of compression or archive of a file, if it is one and can be
    read."""
    with suppress(OSError), path.open("rb") as file:
        return packing_of(file.read(_HEAD_BYTES))
    return None


def refuse_packed(path: Path) -> None:
    """Raise InputError, with the fix, for a file that is compressed or an archive,
    except a zip archive, as `.npz` and `.pt` files are."""
    packing = file_packing(path)
    if packing is None or packing.name == "zip":
        return
    if packing.opener is not None:
        with suppress(*DAMAGE), path.open("rb") as raw:
            inner = packing_of(packing.opener(raw).read(_HEAD_BYTES))
            packing = inner if inner is not None and inner.name == "tar" else packing
    fault = f"{path} is packed by {packing.name}"
    fix = f"unpack it first: {packing.fix}"
    raise InputError(fault, fix)


def refuse_packed_as(path: Path) -> None:
    """Raise InputError, with the fix, where `path` stands beside it only in a packed
    form, such as `PATH.gz`."""
    if path.exists() or not path.parent.is_dir():
        return
    for file in sorted(path.parent.glob(f"{glob.escape(path.name)}.*")):
        packing = file_packing(file) if file.is_file() else None
        if packing is not None:
            fault = f"{file} is packed by {packing.name}"
            fix = f"unpack it to {path.name} first: {packing.fix}"
            raise InputError(fault, fix)


def unpacked(raw: io.FileIO, path: Path) -> io.BufferedReader[Any]:
    """Return the decompressed bytes of `raw`, an open file, as a stream; plain files
    pass as they are.

    Opens gzip, bzip2 and xz, also of several members. Raises InputError with the fix
    for other kinds and for archives, also compressed ones; reading raises an error of
    `DAMAGE` where the data are damaged.
    """
    stream: io.BufferedReader[Any] = io.BufferedReader(raw, _BUFFER_BYTES)
    for _ in range(_MOST_LAYERS):
        packing = packing_of(stream.peek(_HEAD_BYTES))
        if packing is None:
            return stream
        fix = f"unpack it first: {packing.fix}"
        if packing.opener is None:
            fault = f"{path} is packed by {packing.name}"
            raise InputError(fault, fix)
        stream = io.BufferedReader(packing.opener(stream), _BUFFER_BYTES)
    raise InputError(f"{path} is packed several times over", "unpack it first")
