"""Foreign systems: other people's code in a worker of its own, as a container image
(`image:NAME`) or as a folder with an environment of its own (`env:NAME`),
docs/foreign.md. Their events are bounded and checked like any worker's."""

IMAGE = "image:"
ENV = "env:"


def is_foreign(system: str) -> bool:
    """Return whether a system is other people's code in a worker of its own, not a
    Python class."""
    return system.startswith((IMAGE, ENV))
