"""Names of a base class that a subclass must not hide by accident, refused when the
subclass is defined."""

from __future__ import annotations

import dis
from itertools import pairwise
from types import FunctionType

from workloads.errors import InputError


def check_overrides(cls: type, base: type, attributes: tuple[str, ...]) -> None:
    """Check that a subclass overrides methods of `base` by methods alone, and hides
    none of its other names.

    Args:
        attributes: attributes of an instance of `base`, set by its `__init__`.

    Raises:
        InputError: names what the class hides, and the fix.
    """
    for name, value in vars(cls).items():
        own = vars(base).get(name)
        if name in attributes or getattr(own, "__final__", False):
            raise InputError(
                f"{cls.__name__}.{name} hides {base.__name__}.{name}",
                f"rename it, say _{name}",
            )
        if (
            isinstance(own, FunctionType | classmethod)
            and not name.startswith("_")
            and type(value) is not type(own)
        ):
            kind = "classmethod" if isinstance(own, classmethod) else "method"
            raise InputError(
                f"{cls.__name__}.{name} hides {base.__name__}.{name}, a {kind}",
                f"make it a {kind}, or rename it",
            )
        for assigned in sorted(_assigned(value)):
            if isinstance(vars(base).get(assigned), FunctionType | classmethod):
                raise InputError(
                    f"{cls.__name__}.{name} sets self.{assigned}, which hides the "
                    f"method {base.__name__}.{assigned}",
                    f"rename the attribute, say self._{assigned}",
                )


def _assigned(method: object) -> set[str]:
    """Return the names of the attributes that a method sets on its first argument."""
    if not isinstance(method, FunctionType) or method.__code__.co_argcount == 0:
        return set()
    this = method.__code__.co_varnames[0]
    steps = [
        step
        for step in dis.get_instructions(method)
        if step.opname not in ("EXTENDED_ARG", "CACHE")
    ]
    # Later interpreters load two variables by one instruction, whose argument is a
    # tuple.
    return {
        step.argval
        for before, step in pairwise(steps)
        if step.opname == "STORE_ATTR"
        and this in (before.argval, *_last(before.argval))
    }


def _last(argument: object) -> tuple[object, ...]:
    return argument[-1:] if isinstance(argument, tuple) else ()
