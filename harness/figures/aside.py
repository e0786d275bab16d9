"""Helping process of `harness.figures.helpers`: reads evidence and a folder (pickled), then ids of figures to draw."""

from __future__ import annotations

import pickle
import signal
import sys

from harness.figures.base import catalogue
from harness.figures.render import render


def main() -> None:
    """Draw a figure for each line of standard input; print a line when ready for the next."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started the process ends it
    evidence, out = pickle.load(sys.stdin.buffer)
    figures = catalogue()
    print(flush=True)
    for line in sys.stdin.buffer:
        render([figures[line.decode().strip()]], evidence, out, again=True)
        print(flush=True)


if __name__ == "__main__":
    main()
