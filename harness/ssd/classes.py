"""SSD classes: the IOPS and bandwidth that a run's device is held to, so that results
of different machines compare."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from harness.isolation.base import IoLimit
from harness.ssd.device import BlockDevice
from workloads.errors import HostError, InputError, require
from workloads.parsing import ParseError, parse_yaml

USER_FILE = "OUTCORE_DISK_CLASSES"
_FILE = Path(__file__).with_name("classes.yaml")
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)(?:/([0-9]+(?:\.[0-9]+)?))?$")


class DiskClass(BaseModel, extra="forbid", frozen=True):
    """One class of SSD, selected by `--disk-class NAME` or, divided by k, `NAME/k`;
    None leaves a limit off. `mixed`: whether reads and writes share one budget, by the
    evidence `mixed_source`. The kernel limits each separately, so it enforces a shared
    budget on each, not on their sum."""

    name: str
    read_iops: int | None = Field(default=None, gt=0)
    read_bytes_per_s: int | None = Field(default=None, gt=0)
    write_iops: int | None = Field(default=None, gt=0)
    write_bytes_per_s: int | None = Field(default=None, gt=0)
    mixed: Literal["one budget", "a budget each"] = "one budget"
    mixed_source: str = ""
    source: str = Field(min_length=1)
    assumed: bool = False
    divided_by: float = 1.0

    def divided(self, k: float) -> DiskClass:
        """Return the class with IOPS and bandwidth both divided by `k`, so that their
        ratio stays the same."""
        changed = {
            field: max(1, round(value / k))
            for field in (
                "read_iops",
                "read_bytes_per_s",
                "write_iops",
                "write_bytes_per_s",
            )
            if (value := getattr(self, field)) is not None
        }
        return self.model_copy(
            update={
                **changed,
                "name": f"{self.name}/{k:g}",
                "divided_by": self.divided_by * k,
            }
        )

    @property
    def write_cost(self) -> float:
        """Bytes readable in the time of one written byte; 1 if rates are unknown, 0 if
        writes have their own budget."""
        if self.mixed == "a budget each":
            return 0.0
        rates = self.read_bytes_per_s, self.write_bytes_per_s
        return rates[0] / rates[1] if rates[0] and rates[1] else 1.0

    def limits(self, device: BlockDevice) -> tuple[IoLimit, ...]:
        """Return the limits to put on the disks under the data.

        An array's members each get an equal share of the class. Writes with neither
        figures nor a budget of their own get the limits of reads. Raises HostError: the
        file system is on no block device.
        """
        if not device.numbers:
            message = (
                f"the data lie on {device.file_system}, which has no block device to "
                "limit"
            )
            raise HostError(message, "move them to a disk, or use --disk-class none")
        share = self.divided(len(device.numbers)) if len(device.numbers) > 1 else self
        writes = share.write_iops, share.write_bytes_per_s
        if self.mixed == "one budget":
            writes = writes[0] or share.read_iops, writes[1] or share.read_bytes_per_s
        return tuple(
            IoLimit(number, share.read_iops, share.read_bytes_per_s, *writes)
            for number in device.numbers
        )


def load_classes(user_file: Path | None = None) -> dict[str, DiskClass]:
    """Read the built-in classes and those of `user_file` (default:
    $OUTCORE_DISK_CLASSES), which replace equal names. Raises InputError: the file is
    missing, is not YAML, or has an unknown key or an invalid value."""
    if user_file is None and os.environ.get(USER_FILE):
        user_file = Path(os.environ[USER_FILE])
    found: dict[str, DiskClass] = {}
    for path in [_FILE, *([user_file] if user_file else [])]:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError.from_os(
                error, f"{path} cannot be read", "give a YAML file of disk classes"
            ) from error
        for name, values in named_mappings(
            content, path, "disk classes", "name: {read_iops: …, source: …}"
        ).items():
            try:
                found[name] = DiskClass(name=name, **values)
            except (ValidationError, TypeError) as error:
                first = (
                    error.errors()[0] if isinstance(error, ValidationError) else None
                )
                message = (
                    f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
                    if first
                    else str(error)
                )
                keys = [
                    key
                    for key in DiskClass.model_fields
                    if key not in ("name", "divided_by")
                ]
                raise InputError(
                    f"{path}: {name}: {message}", f"keys are {', '.join(keys)}"
                ) from error
    return found


def named_mappings(
    text: str | bytes, path: Path, kind: str, example: str
) -> dict[str, dict[str, Any]]:
    """Parse YAML of names, each with a mapping.

    Args:
        text, path: content of a file, and its path for messages.
        kind, example: kind of the entries, and the form of one entry, for messages.

    Raises:
        InputError: the text is no YAML or ambiguous, or has another form.
    """
    try:
        content = parse_yaml(text)
    except ParseError as error:
        raise InputError(f"{path} is not YAML: {error}", "correct the file") from error
    require(isinstance(content, dict), f"{path} has no {kind}", f"write `{example}`")
    for name, values in content.items():
        require(
            isinstance(values, dict),
            f"{path}: {name} is not a mapping",
            f"write `{example}`",
        )
    return {str(name): values for name, values in content.items()}


def parse_disk_class(text: str, user_file: Path | None = None) -> DiskClass | None:
    """Return the class named by `text`, like `aws-nvme/16`; None for `none`. Raises
    InputError: the name is unknown (the nearest is suggested), or k is not a number
    above 0."""
    if text == "none":
        return None
    classes = load_classes(user_file)
    match = _NAME.match(text)
    name = match.group(1) if match else text.partition("/")[0]
    if name not in classes:
        near = difflib.get_close_matches(name, classes, n=1, cutoff=0.0)
        raise InputError(
            f"disk class is {name!r}",
            f"did you mean {near[0]}? known: none, {', '.join(classes)}",
        )
    if match is None or (match.group(2) is not None and float(match.group(2)) <= 0):
        raise InputError(
            f"disk class is {text!r}, and k is not a number above 0",
            f"write it like {name}/16",
        )
    return (
        classes[name].divided(float(match.group(2)))
        if match.group(2)
        else classes[name]
    )
