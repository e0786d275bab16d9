"""Gives up root for good and becomes the command: `UID GID NAME -- COMMAND …`, or `- - -` to stay who it is.

Run as a program inside a cap that root has joined; it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import sys

NOT_STARTED = 127


def main(arguments: list[str]) -> None:
    """Drop groups, gid and uid in this order, then execute."""
    uid, gid, name, dashes, *command = arguments
    if dashes != "--" or not command:
        raise SystemExit("usage: become UID GID NAME -- COMMAND …")
    if uid != "-":
        try:
            os.initgroups(name, int(gid))
        except (OSError, KeyError):
            os.setgroups([int(gid)])
        os.setgid(int(gid))
        os.setuid(int(uid))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(NOT_STARTED) from error


if __name__ == "__main__":
    main(sys.argv[1:])
