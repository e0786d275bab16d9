"""JSON as plain data: a key that an object holds twice, or a number that is not finite,
is refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from workloads.arraytypes import JsonDict
from workloads.parsing.text import ParseError, decoded


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; raises ParseError for text that is no JSON or not UTF-8, a key twice,
    or a number that is not finite."""
    text = decoded(content)
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_not_finite,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        fault = f"line {error.lineno}: {error.msg[0].lower()}{error.msg[1:]}"
        raise ParseError(fault) from error
    except RecursionError as error:
        raise ParseError("it is nested too deeply") from error
    except ParseError:
        raise
    except ValueError as error:  # a whole number of more digits than Python reads
        fault = str(error).partition(";")[0]
        raise ParseError(fault) from error


def _unique(pairs: list[tuple[str, Any]]) -> JsonDict:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ParseError(f"the key {twice!r} is in one object twice, keep one of them")
    return found


def _not_finite(text: str) -> NoReturn:
    raise ParseError(f"{text} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _not_finite(text)
    return value
