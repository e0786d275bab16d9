"""Facts of a run that code computes with, beside the counters; text for people goes to a system's notes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Facts(BaseModel):
    """Named, typed facts of a run; None: unknown or not applicable.

    A system with more facts derives a class with more fields, of plain types and with the unit in the name (`pack_s`,
    `disk_bytes`). Records keep every field under its name. A field with `repr=False` is not among the notes.

    Attributes:
        io: the reader's mode and fallbacks, such as `io_uring registered`.
        reads_in: stages in which the system submits its own reads; empty: `extract`.
        prepared_reused: whether preparation found the artefacts of an earlier run.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    io: str | None = None
    reads_in: tuple[str, ...] = ()
    prepared_reused: bool | None = Field(default=None, repr=False)

    def notes(self) -> dict[str, str]:
        """Return the facts as text for people, seconds and ratios to three decimals."""
        found: dict[str, str] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.repr and value not in (None, ()):
                found[name] = "+".join(value) if isinstance(value, tuple) else _text(value)
        if self.prepared_reused is not None:
            found["prepared"] = "reused" if self.prepared_reused else "made"
        return found


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
