"""Image of a worker and its mounts from the host: the host's own system by default, or
an image that was built. The image's label `org.outcore.layout` names one of two
layouts. `host`: an image of a few empty folders, made here in an instant, into which
the host's `/usr`, the interpreter and the checkout are mounted read-only, so that the
very same bytes run as without a container. `image`: everything is in the image
(`containers/Dockerfile`), with the interpreter named by `org.outcore.python`. A third
party's image names its own worker by `org.outcore.worker`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.isolation.docker.engine import LABEL, asking
from harness.isolation.source import source_digest
from harness.isolation.walls.host_view import USR_LINKS, code_paths
from workloads.errors import HostError, InputError

HOST_IMAGE = "outcore-host"
_FOLDERS = (
    "usr",
    "etc",
    "proc",
    "sys",
    "dev",
    "tmp",
    "run",
    "var",
    "home",
    "opt",
    "mnt",
    "srv",
    "root",
)


@dataclass(frozen=True)
class Image:
    """Image on the engine. `name`, `identity`: requested name, and content hash for the
    record. `layout`: `host` or `image`. `python`: path of the interpreter inside.
    `worker`: command of a third party's own worker, empty for Outcore's. `system`:
    `SystemInfo` of a third party's system as JSON, None for Outcore's. `source`: digest
    of Outcore's code inside, empty where the host's is mounted."""

    name: str
    identity: str
    layout: str
    python: str
    worker: tuple[str, ...] = ()
    system: dict[str, Any] | None = None
    source: str = ""

    def argv(self, argv: Iterable[str]) -> list[str]:
        """Return a host command as it runs inside: with this image's interpreter, and
        its own worker if it has one."""
        words = list(argv)
        if self.worker and words[:3] == [sys.executable, "-m", "harness.worker.main"]:
            return [*self.worker, *words[3:]]
        if words and words[0] == sys.executable:
            words[0] = self.python
        return words

    def mounts(self) -> list[Path]:
        """Return host folders and files that are mounted read-only at the same path for
        every command."""
        return code_paths() if self.layout == "host" else []


def wanted() -> str:
    """Return the image named by `$OUTCORE_IMAGE`, or the image made from this host."""
    return os.environ.get("OUTCORE_IMAGE", "") or HOST_IMAGE


def find(client: Any, name: str) -> Image:
    """Return the image `name` of the engine; make the host's own where it is missing;
    pull none. Raises HostError: it is missing, or holds other code. Raises InputError:
    a label of Outcore's is missing or invalid."""
    if name == HOST_IMAGE:
        name = _make_host_image(client)
    with asking(f"look at image {name}"):
        attributes = client.images.get(name).attrs
    labels = attributes["Config"].get("Labels") or {}
    layout = labels.get(f"{LABEL}.layout", "")
    if layout not in ("host", "image"):
        message = (
            f"image {name} has no label {LABEL}.layout, so it is unknown how a worker "
            "starts in it"
        )
        raise InputError(
            message, "build on an image of Outcore's, see docs/containers.md"
        )
    try:
        worker = tuple(json.loads(labels.get(f"{LABEL}.worker", "[]")))
        system = json.loads(labels.get(f"{LABEL}.system", "null"))
    except ValueError as error:
        raise InputError(
            f"image {name}: a label of {LABEL} is not JSON ({error})",
            "fix its Dockerfile",
        ) from error
    source = labels.get(f"{LABEL}.source", "")
    if layout == "image" and not worker and source != source_digest():
        message = (
            f"image {name} holds other code than this checkout, so its runs could not "
            "be compared with others"
        )
        raise HostError(message, "build it again: containers/build")
    python = (
        sys.executable if layout == "host" else labels.get(f"{LABEL}.python", "python3")
    )
    return Image(name, attributes["Id"], layout, python, worker, system, source)


def _make_host_image(client: Any) -> str:
    """Make the host's image where it is missing; return its name, whose tag is a digest
    of its content."""
    import docker.errors

    archive = _host_archive()
    tag = hashlib.sha256(archive).hexdigest()[:12]
    try:
        client.images.get(f"{HOST_IMAGE}:{tag}")
    except docker.errors.ImageNotFound:
        with asking("make an image"):
            label = f"LABEL {LABEL}.layout=host"
            client.api.import_image_from_data(
                archive, repository=HOST_IMAGE, tag=tag, changes=[label]
            )
    return f"{HOST_IMAGE}:{tag}"


def _host_archive() -> bytes:
    """Return an archive of empty folders with the host's links into /usr. Raises
    HostError: /bin is no link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            archive.addfile(entry)
        for name in USR_LINKS:
            path = Path("/") / name
            if not path.exists():
                continue
            if not path.is_symlink():
                message = (
                    f"/{name} is a folder of its own here, so a container cannot take "
                    "it from /usr"
                )
                raise HostError(
                    message,
                    "build an image with containers/build, and name it in "
                    "OUTCORE_IMAGE",
                )
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.SYMTYPE
            entry.linkname = str(path.readlink()).lstrip("/")
            archive.addfile(entry)
    return buffer.getvalue()
