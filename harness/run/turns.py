"""Turns of several sweeps on one machine, passed on between epochs, so that a disturbance hits all of them alike.

Only the holder of the turn works; a worker of the others waits at the gate before an epoch. The server passes the turn
on in the order of requests, so two sweeps alternate; a closed connection returns its turn.
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

#: Environment variable with the path of the server's socket, set by the program that starts the sweeps.
VARIABLE = "OUTCORE_TURNS"
_TAKE, _PASS, _GO = b"t", b"p", b"g"


class Turn:
    """Turn of one sweep among several; without a server's `address` the sweep is alone and always has the turn.

    `waited_s`: seconds spent waiting for the turn.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._connection: socket.socket | None = None
        self._held = False
        self.waited_s = 0.0

    @property
    def shared(self) -> bool:
        """Whether other sweeps share the turn."""
        return self._address is not None

    @classmethod
    def of_environment(cls) -> Turn:
        """Return the turn on the server that the environment variable `OUTCORE_TURNS` names."""
        return cls(os.environ.get(VARIABLE) or None)

    def take(self) -> None:
        """Wait for the turn, unless it is held already.

        Raises:
            HostError: the server is gone.
        """
        if not self._held:
            self._ask(_TAKE)

    def let_others(self) -> None:
        """Pass the turn on and wait until all sweeps that waited have had it. Raises what `take` raises."""
        # One message, so that a sweep that is slow to ask again does not lose its place.
        self._ask(_PASS + _TAKE if self._held else _TAKE)

    def _ask(self, message: bytes) -> None:
        if self._address is None:
            return
        self._held = False
        began = time.monotonic()
        try:
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.connect(self._address)
            self._connection.sendall(message)
            answer = self._connection.recv(1)
        except OSError as error:
            raise HostError(
                f"no turn could be had from {self._address}: {error.strerror}", "start the check again"
            ) from error
        if answer != _GO:
            raise HostError(f"the turns of {self._address} have ended", "start the check again")
        self._held = True
        self.waited_s += time.monotonic() - began

    def close(self) -> None:
        """Close the connection, which returns the turn. May be called more than once."""
        connection, self._connection = self._connection, None
        self._held = False
        if connection is not None:
            connection.close()


class Turns:
    """Server that grants one turn at a time in the order of requests, from its own thread. A context manager.

    `parties`: number of sweeps that have to ask before the first turn, so that none runs alone at first.
    `address`: path of the socket for `Turn`, or for `OUTCORE_TURNS` of processes.
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
        self._known: set[socket.socket] = set()
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
        """Stop waiting for further parties, after one of them ended before it connected."""
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
            if connection not in self._known:
                self._known.add(connection)
                self._missing -= 1
            self._waiting.append(connection)
            return
        if self._holder is connection:
            self._holder = None
        if said != _PASS:
            selector.unregister(connection)
            self._known.discard(connection)
            connection.close()
            if connection in self._waiting:
                self._waiting.remove(connection)

    def _hand_on(self) -> None:
        if self._holder is None and self._waiting and self._missing <= 0:
            self._holder = self._waiting.popleft()
            try:
                self._holder.sendall(_GO)
            except OSError:
                self._holder = None  # the sweep is gone; its closed connection is read next
