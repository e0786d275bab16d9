"""Taking turns: several sweeps on one machine let each other go ahead between epochs, so that what disturbs one epoch
disturbs those that it is compared with alike.

Whoever holds the turn works, all others wait: a worker stands still at the gate before an epoch while they go ahead.
The server hands the turn on in the order of asking, so two who take turns alternate; who goes away gives it back.
"""

from __future__ import annotations

import os
import selectors
import socket
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from workloads.errors import HostError

#: Path of the server's socket; set by those who start the sweeps.
VARIABLE = "OUTCORE_TURNS"
_TAKE, _PASS, _GO = b"t", b"p", b"g"


class Turn:
    """One sweep's place among those that take turns; where there are no others it is always this one's turn.

    Args:
        address: of the server; None: alone.

    Attributes:
        waited_s: seconds in which others had the turn.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._connection: socket.socket | None = None
        self._held = False
        self.waited_s = 0.0

    @property
    def shared(self) -> bool:
        """Whether there are others."""
        return self._address is not None

    @classmethod
    def of_environment(cls) -> Turn:
        """As whoever started this process asked for."""
        return cls(os.environ.get(VARIABLE) or None)

    def take(self) -> None:
        """Wait for the turn; nothing where it is held already.

        Raises:
            HostError: the server is gone.
        """
        if self._address is None or self._held:
            return
        began = time.monotonic()
        try:
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.connect(self._address)
            self._connection.sendall(_TAKE)
            answer = self._connection.recv(1)
        except OSError as error:
            raise HostError(
                f"no turn could be had from {self._address}: {error.strerror}", "start the check again"
            ) from error
        if answer != _GO:
            raise HostError(f"the turns of {self._address} have ended", "start the check again")
        self._held = True
        self.waited_s += time.monotonic() - began

    def pass_on(self) -> None:
        """Let the others go ahead, if it is held."""
        if self._held and self._connection is not None:
            self._held = False
            self._connection.sendall(_PASS)

    def let_others(self) -> None:
        """One round of all who wait, then on."""
        self.pass_on()
        self.take()

    def close(self) -> None:
        """Give the turn back for good. May be called more than once."""
        connection, self._connection = self._connection, None
        self._held = False
        if connection is not None:
            connection.close()


class Turns:
    """Hands out turns from a thread of its own, one at a time, in the order of asking. A context manager.

    Args:
        parties: nobody gets the first turn before so many have asked, so that none runs alone at first.

    Attributes:
        address: for `Turn`, or for `OUTCORE_TURNS` of processes.
    """

    def __init__(self, parties: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outcore-turns-")
        self.address = str(Path(self._folder.name) / "turns")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.address)
        self._server.listen(64)
        self._ours, self._theirs = socket.socketpair()
        self._waiting: deque[socket.socket] = deque()
        self._holder: socket.socket | None = None
        self._missing = parties
        self._thread = threading.Thread(target=self._serve, name="outcore-turns", daemon=True)

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ours.close()
        self._thread.join()
        self._theirs.close()
        self._server.close()
        self._folder.cleanup()

    def all_here(self) -> None:
        """Wait for nobody any more: one of the parties ended before it asked."""
        self._ours.sendall(b"a")

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._theirs, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._theirs:
                        if not self._theirs.recv(1):
                            for other in list(selector.get_map().values()):
                                if isinstance(other.fileobj, socket.socket) and other.fileobj not in (
                                    self._server,
                                    self._theirs,
                                ):
                                    other.fileobj.close()
                            return
                        self._missing = 0
                    elif key.fileobj is self._server:
                        connection, _ = self._server.accept()
                        selector.register(connection, selectors.EVENT_READ)
                        self._missing -= 1
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._hear(key.fileobj, selector)
                self._hand_on()

    def _hear(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            said = connection.recv(1)
        except OSError:
            said = b""
        if said == _TAKE:
            self._waiting.append(connection)
            return
        if self._holder is connection:
            self._holder = None
        if said != _PASS:
            selector.unregister(connection)
            connection.close()
            if connection in self._waiting:
                self._waiting.remove(connection)

    def _hand_on(self) -> None:
        if self._holder is None and self._waiting and self._missing <= 0:
            self._holder = self._waiting.popleft()
            try:
                self._holder.sendall(_GO)
            except OSError:
                self._holder = None  # it is gone; its end is heard next
