"""Prices of drives from a user's YAML or CSV file, by the name of a drive or a
class."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from harness.settings import Strict, strict
from harness.ssd.classes import named_mappings
from workloads.errors import InputError, require

_GB_OF_A_TB = 1000.0


class Price(Strict):
    """Price of one drive, per GB or with its capacity; `source` has place and date,
    since prices change."""

    model_config = ConfigDict(frozen=True)

    price_per_gb: float | None = Field(default=None, gt=0)
    price: float | None = Field(default=None, gt=0)
    capacity_gb: float | None = Field(default=None, gt=0)
    currency: str = "$"
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _enough(self) -> Price:
        if self.price_per_gb is None and (
            self.price is None or self.capacity_gb is None
        ):
            raise ValueError("give price_per_gb, or price and capacity_gb")
        return self

    @property
    def per_tb(self) -> float:
        """Price of 1 TB."""
        return (
            self.price_per_gb or (self.price or 0.0) / (self.capacity_gb or 1.0)
        ) * _GB_OF_A_TB


def load_prices(path: Path) -> dict[str, Price]:
    """Read name -> price from a `.csv` file (columns `device`, `price_per_gb`, …) or
    YAML (`name: {price_per_gb: …}`). Raises InputError: the file is missing or has no
    such table; a key is unknown, a value invalid, a drive named twice."""
    try:
        content = path.read_bytes()
        in_csv = path.suffix.lower() == ".csv"
        text = content.decode("utf-8-sig") if in_csv else ""
    except OSError as error:
        raise InputError.from_os(
            error, f"prices {path} cannot be read", "give a YAML or CSV file"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"prices {path} are not UTF-8", "save the file in that encoding"
        ) from error
    example = "name: {price_per_gb: …, source: …}"
    rows = (
        _rows_of_csv(text, path)
        if in_csv
        else named_mappings(content, path, "prices", example)
    )
    return {
        name: strict(Price, values, f"{path}: {name}") for name, values in rows.items()
    }


def price_of(prices: dict[str, Price], *names: str) -> Price | None:
    """Return the price of the first name that has one of its own: a divided class, like
    `aws-nvme/16`, lacks the performance of the whole drive, so it does not take its
    price."""
    return next((prices[name] for name in names if name in prices), None)


def _rows_of_csv(text: str, path: Path) -> dict[str, dict[str, Any]]:
    reader = csv.DictReader(
        line for line in text.splitlines() if not line.startswith("#")
    )
    if "device" not in (reader.fieldnames or []):
        raise InputError(
            f"{path} has no column `device`",
            "its first line is like device,price_per_gb,source",
        )
    names = reader.fieldnames or []
    twice = next((name for name in names if names.count(name) > 1), None)
    require(
        twice is None, f"{path}: the column {twice} is there twice", "keep one of them"
    )
    rows: dict[str, dict[str, Any]] = {}
    for row in reader:
        if None in row:
            raise InputError(
                f"{path}: line {reader.line_num} has more cells than the first",
                "quote commas",
            )
        if (name := str(row.pop("device"))) in rows:
            raise InputError(f"{path}: {name} stands there twice", "keep one of them")
        rows[name] = {key: value for key, value in row.items() if value}
    return rows
