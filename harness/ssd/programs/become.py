"""Program that drops root for good, inside a cap that root has joined, and executes a
command: `UID GID NAME -- COMMAND`; `- - -` keeps the user. Imports nothing but the
standard library."""

from __future__ import annotations

import os
import sys

NOT_STARTED = 127


def main(arguments: list[str]) -> None:
    """Drop groups, gid and uid in this order, then execute the command."""
    uid, gid, name, dashes, *command = arguments
    if dashes != "--" or not command:
        raise SystemExit("usage: become UID GID NAME -- COMMAND …")
    # Before root is dropped: this imports modules of the interpreter that the user may
    # be unable to read.
    folders = (
        [""] if "/" in command[0] else [f"{folder}/" for folder in os.get_exec_path()]
    )
    if uid != "-":
        try:
            os.initgroups(name, int(gid))
        except (OSError, KeyError):
            os.setgroups([int(gid)])
        os.setgid(int(gid))
        os.setuid(int(uid))
    reason = "No such file or directory"
    for folder in folders:
        try:
            os.execv(folder + command[0], command)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = error.strerror or str(error)
    print(f"{command[0]}: {reason}", file=sys.stderr)
    raise SystemExit(NOT_STARTED)


if __name__ == "__main__":
    main(sys.argv[1:])
