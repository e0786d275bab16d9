"""Turns of several sweeps on one machine, passed on between epochs, so that a
disturbance hits all of them alike. Only the holder of the turn works; a worker of the
others waits at the gate before an epoch. The server passes the turn on in the order of
requests, so two sweeps alternate; a closed connection returns its turn."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

from workloads.errors import HostError

#: Environment variable with the path of the server's socket, set by the program that
#: starts the sweeps.
VARIABLE = "OUTCORE_TURNS"
_TAKE = b"t"
_PASS = b"p"
_GO = b"g"


class Turn:
    """Turn of one sweep among several; without a server's `address` the sweep is alone
    and always has the turn. `shared`: whether other sweeps share the turn. `waited_s`:
    seconds spent waiting for it."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._connection: socket.socket | None = None
        self._held = False
        self.shared = address is not None
        self.waited_s = 0.0

    @classmethod
    def of_environment(cls) -> Turn:
        """Return the turn on the server that the environment variable `OUTCORE_TURNS`
        names."""
        return cls(os.environ.get(VARIABLE) or None)

    def take(self) -> None:
        """Wait for the turn, unless it is held already. Raises HostError: the server is
        gone."""
        if not self._held:
            self._ask(_TAKE)

    def let_others(self) -> None:
        """Pass the turn on and wait until all sweeps that waited have had it. Raises
        what `take` raises."""
        # One message, so that a sweep that is slow to ask again does not lose its
        # place.
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
            fault = f"no turn could be had from {self._address}"
            raise HostError.from_os(error, fault, "start the check again") from error
        if answer != _GO:
            raise HostError(
                f"the turns of {self._address} have ended", "start the check again"
            )
        self._held = True
        self.waited_s += time.monotonic() - began

    def close(self) -> None:
        """Close the connection, which returns the turn. May be called more than
        once."""
        connection = self._connection
        self._connection = None
        self._held = False
        if connection is not None:
            connection.close()


class Turns:
    """Server that grants one turn at a time in the order of requests, from its own
    thread. A context manager. `parties`: number of sweeps that have to ask before the
    first turn, so that none runs alone at first. `address`: path of the socket for
    `Turn`, or for `OUTCORE_TURNS` of processes."""

    def __init__(self, parties: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outcore-turns-")
        self.address = str(Path(self._folder.name) / "turns")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.address)
        self._server.listen(64)
        self._missing = parties
        self._loop = asyncio.new_event_loop()
        # asyncio's lock is granted in the order of requests.
        self._turn = asyncio.Lock()
        self._all_here = asyncio.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name="outcore-turns", daemon=True
        )

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._folder.cleanup()

    def all_here(self) -> None:
        """Stop waiting for further parties, after one of them ended before it
        connected."""
        self._loop.call_soon_threadsafe(self._all_here.set)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._hear, sock=self._server)
        await self._ended.wait()
        server.close()

    async def _hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one sweep until it closes its connection, which returns its turn."""
        asked = holds = False
        try:
            while (fault := await reader.read(1)) in (_TAKE, _PASS):
                if holds:
                    self._turn.release()
                    holds = False
                if fault == _PASS:
                    continue
                if not asked:
                    asked = True
                    self._missing -= 1
                if self._missing <= 0:
                    self._all_here.set()
                await self._all_here.wait()
                holds = await self._turn.acquire()
                writer.write(_GO)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the sweep is gone, or the server ends
        finally:
            if holds:
                self._turn.release()
            writer.close()
