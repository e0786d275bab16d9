"""Text of a file to parse: its encoding and its lines, and the error of a document that
is refused."""

from __future__ import annotations


class ParseError(ValueError):
    """Text that is no YAML or JSON, or is ambiguous; the message names the line where
    it is known."""


def decoded(content: str | bytes) -> str:
    """Decode UTF-8, with or without a byte order mark; raises ParseError with the line
    of other bytes."""
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ParseError(
            f"line {line}: it is not UTF-8, save it in that encoding"
        ) from error


def line_at(text: str, position: int) -> int:
    """Return the number of the line that holds the character at `position`."""
    return text.count("\n", 0, position) + 1
