"""Archives of run folders and studies for another host: packed from a results root,
unpacked without trust.

An archive holds `runs/<run id>/<file>`, `studies/<study>-<key>.json` and
`experiments/<name>.json`. Other files (figures, caches) are ignored; a link, a device,
a path out of the archive or a member over its limit makes the whole archive invalid.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from harness.atomic import whole_file
from harness.records.seal import THINNED
from harness.records.study import STUDIES
from harness.results import store as results
from workloads.errors import InputError
from workloads.units import format_bytes

MIB = 2**20
# Files of a run folder, with the largest valid size.
RUN_FILES = {
    results.RECORD: 16 * MIB,
    "telemetry.parquet": 512 * MIB,
    "stages.parquet": 1024 * MIB,
    "batches.parquet": 1024 * MIB,
    results.WORKER_LOG: 64 * MIB,
    THINNED: MIB,
}
STUDY_BYTES = 64 * MIB
MAX_TOTAL_BYTES = 64 * 1024 * MIB
MAX_MEMBERS = 100_000
# Python's tarfile reads a header of any length into memory at once; valid ones are
# shorter than this.
_MAX_READ = 4 * MIB
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
)
_BAD = (*_DAMAGED, EOFError, ValueError, NotImplementedError)

RUN_ID = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9+][A-Za-z0-9+-]{0,119}")
STUDY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}-[0-9a-f]{16}\.json")
_EXPERIMENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\.json")
SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip")


def is_archive(path: Path) -> bool:
    """Return whether a file's name has the suffix of an archive."""
    return path.name.lower().endswith(SUFFIXES)


class Member(NamedTuple):
    """One entry of an archive or folder, and a function that opens it; `kind` is
    `file`, `folder` or an invalid one."""

    name: str
    kind: str
    size: int
    open: Callable[[], Any]


def _place_of(member: Member, source: str) -> tuple[Path, int] | None:
    """Return a member's path under a results root and its size limit; None for an
    ignored member. Raises InputError: it is a link or a device, leads out of the
    archive, has no valid id or exceeds its limit."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    shown = ascii(member.name)
    if member.name.startswith("/") or ".." in parts or "\\" in member.name:
        raise InputError(
            f"{source} holds {shown}, which leads out of it",
            "take it from whom you trust",
        )
    if member.kind not in ("file", "folder"):
        raise InputError(
            f"{source} holds {shown}, which is a {member.kind}",
            "pack it with `outcore results export`",
        )
    if member.kind == "folder" or len(parts) < 2 or parts[-2].startswith("."):
        return None
    folder, name = parts[-2:]
    if folder == STUDIES and name.endswith(".json") and not name.startswith("."):
        if not STUDY_NAME.fullmatch(name):
            raise InputError(
                f"{source} holds {shown}, whose name is no study's",
                "see `outcore results export --runs`",
            )
        place = Path(STUDIES, name)
        limit = STUDY_BYTES
    elif folder == results.EXPERIMENTS and _EXPERIMENT_NAME.fullmatch(name):
        place = Path(results.EXPERIMENTS, name)
        limit = MIB
    elif name in RUN_FILES:
        if not RUN_ID.fullmatch(folder):
            raise InputError(
                f"{source} holds {shown}, whose folder has no run's id",
                "see `outcore results list`",
            )
        place = Path(results.RUNS, folder, name)
        limit = RUN_FILES[name]
    else:
        return None
    if member.size > limit:
        sizes = f"{format_bytes(member.size)}, {format_bytes(limit)} is the limit"
        raise InputError(f"{source} holds {shown} of {sizes}", "take that run out")
    return place, limit


def unpack(source: Path, into: Path) -> None:
    """Copy the runs and studies of an archive or folder into the empty folder `into`,
    laid out as a results root.

    Raises:
        InputError: the archive is damaged or has an invalid member; `into` may then
            hold a part of it.
        OSError: `into` cannot be written.
    """
    shown = str(source)
    members = _walk(source) if source.is_dir() else _open(source)
    total = 0
    try:
        for number, member in enumerate(members, start=1):
            total += member.size
            if number > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
                most = f"{MAX_MEMBERS} files or {format_bytes(MAX_TOTAL_BYTES)}"
                raise InputError(
                    f"{shown} holds more than {most}", "import it in parts"
                )
            found = _place_of(member, shown)
            if found is None:
                continue
            place, limit = found
            if (into / place).exists():
                raise InputError(f"{shown} holds {place} twice", "pack it again")
            _copy(member, into / place, limit, shown)
    except _BAD as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{shown} is cut off or is no archive of runs: {message}", "copy it again"
        ) from error


def _copy(member: Member, out: Path, limit: int, source: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    left = limit
    with member.open() as stream, out.open("xb") as file:
        while chunk := stream.read(MIB):
            left -= len(chunk)
            if left < 0:
                raise InputError(
                    f"{source} holds {out.name} of over {format_bytes(limit)}",
                    "take that run out",
                )
            file.write(chunk)


def _walk(root: Path) -> Iterator[Member]:
    """Yield the entries of a results root, a run folder or a folder of run folders;
    links are not followed."""
    base = root.parent if (root / results.RECORD).is_file() else root
    waiting = [root] if base != root else [root / results.RUNS, root / STUDIES]
    if not any(path.is_dir() for path in waiting):
        waiting = [root]
    for path in waiting:
        if path.is_symlink() and path != root:
            yield Member(path.relative_to(base).as_posix(), "link", 0, path.open)
    waiting = [path for path in waiting if path.is_dir()]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            status = path.lstat()
            within = path.relative_to(base)
            kind = _kind(status.st_mode)
            if (
                kind == "folder"
                and not path.name.startswith(".")
                and len(within.parts) < 3
            ):
                waiting.append(path)
            size = status.st_size if kind == "file" else 0
            opened = partial(
                open,
                path,
                "rb",
                opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW),
            )
            yield Member(within.as_posix(), kind, size, opened)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return (
        "folder"
        if stat.S_ISDIR(mode)
        else "link"
        if stat.S_ISLNK(mode)
        else "device or pipe"
    )


def _open(source: Path) -> Iterator[Member]:
    try:
        with source.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise InputError.from_os(
            error, f"{source} cannot be read", "name a folder, .tar.gz or .zip"
        ) from error
    if begin[:2] == b"PK":
        yield from _of_zip(source)
    else:
        kinds: dict[bytes, Callable[[Path], Any]] = {
            b"\x1f\x8b": gzip.open,
            b"\xfd7": lzma.open,
        }
        with kinds.get(begin[:2], partial(open, mode="rb"))(source) as plain:
            yield from _of_tar(cast("IO[bytes]", _Bounded(plain)))


class _Bounded:
    """A stream that refuses reads of more than a few MiB."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.seek = raw.seek
        self.tell = raw.tell

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _MAX_READ:
            raise ValueError(f"a header of {size} bytes")
        return bytes(self._raw.read(size))


def _of_tar(stream: IO[bytes]) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for info in archive:
            kind = (
                "link"
                if info.islnk() or info.issym()
                else "folder"
                if info.isdir()
                else "device"
            )
            if info.isreg() and not info.issparse():
                kind = "file"
            yield Member(info.name, kind, info.size, partial(archive.extractfile, info))
        stream.seek(archive.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            # tarfile takes an archive cut off between two members or within a header
            # for complete.
            raise EOFError("it has no end mark")


def _of_zip(source: Path) -> Iterator[Member]:
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            kind = (
                "folder"
                if info.is_dir()
                else _kind(mode)
                if stat.S_IFMT(mode)
                else "file"
            )
            if info.flag_bits & 1:
                raise InputError(f"{source} is encrypted", "pack it without a password")
            yield Member(
                info.filename, kind, info.file_size, partial(archive.open, info)
            )


def pack(
    root: Path, folders: Sequence[Path], others: Sequence[Path], out: Path
) -> None:
    """Write run folders, studies and experiments into an archive, whole or not at all,
    without owners and users.

    Args:
        root: results root, to which the paths in the archive are relative.
        folders, others: run folders, and files of studies and experiments.
        out: path of the archive, with one of `SUFFIXES`.

    Raises:
        InputError: `out` has another suffix.
        DataIOError: `out` cannot be written.
    """
    if not is_archive(out):
        raise InputError(
            f"--out is {out}, and its kind is not known",
            f"end it in {', '.join(SUFFIXES)}",
        )
    files = [
        path
        for folder in folders
        for path in folder.iterdir()
        if path.name in RUN_FILES
    ]
    # Files of one kind are alike, and compress best beside each other.
    files = [*sorted(files, key=lambda path: (path.name, path)), *others]
    with whole_file(out, "the archive") as unfinished:
        if out.suffix == ".zip":
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as packed:
                for path in files:
                    packed.write(path, path.relative_to(root).as_posix())
            return
        with (
            unfinished.open("wb") as raw,
            _compressed(raw, out.suffix) as stream,
            tarfile.open(fileobj=stream, mode="w") as archive,
        ):
            for path in files:
                status = path.stat()
                info = tarfile.TarInfo(path.relative_to(root).as_posix())
                info.size = status.st_size
                info.mtime = int(status.st_mtime)
                info.mode = 0o644
                with path.open("rb") as file:
                    archive.addfile(info, file)


def _compressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    """Return a stream that compresses into `raw`, or `raw` itself for the suffix of a
    plain tar."""
    if suffix == ".xz":
        return cast("IO[bytes]", lzma.LZMAFile(raw, "wb"))
    return (
        raw
        if suffix == ".tar"
        else cast("IO[bytes]", gzip.GzipFile("", "wb", 6, raw, mtime=0))
    )
