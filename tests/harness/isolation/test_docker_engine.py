"""An engine that cannot be used is reported with the cause and its own fix.

A real HTTP server on a real socket stands in for engines of other versions and for
proxies, which cannot be installed here; docker-py speaks to it as to an engine.
"""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness.isolation.docker.engine import asking, connect
from workloads.errors import HostError


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def answering(folder: Path, answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Serve one answer (status, body) a path ending; other paths get the answer of ``.
    Yields DOCKER_HOST."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            status, body = next(
                (
                    answer
                    for end, answer in answers.items()
                    if end and path.endswith(end)
                ),
                answers[""],
            )
            self.send_response(status)
            self.send_header(
                "Content-Type",
                "application/json" if body.startswith("{") else "text/html",
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: object) -> None:
            pass

    path = folder / "s"
    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()


def refusal(host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(HostError) as refused:
        connect()
    text = str(refused.value)
    assert "\n" not in text
    return text


def version(api: str) -> tuple[int, str]:
    return 200, json.dumps({"ApiVersion": api, "Version": "1"})


@pytest.mark.parametrize(
    ("answer", "cause", "fix"),
    [
        (version("1.12"), "older than the Python package", "upgrade the Docker Engine"),
        (
            (
                400,
                json.dumps(
                    {
                        "message": "client version 1.41 is too old. Minimum "
                        "supported API "
                        "version is 1.99"
                    }
                ),
            ),
            "newer than the Python package",
            "pip install --upgrade docker",
        ),
        (
            (
                400,
                json.dumps(
                    {
                        "message": "client version 1.52 is too new. Maximum "
                        "supported API "
                        "version is 1.30"
                    }
                ),
            ),
            "older than the Python package",
            "upgrade the Docker Engine",
        ),
        (
            (502, "<html>502 Bad Gateway</html>"),
            "a proxy in front of it answers with status 502",
            "check the proxy",
        ),
        (
            (503, "no backend"),
            "a proxy in front of it answers with status 503",
            "check the proxy",
        ),
        (
            (403, "denied by policy"),
            "refuses this user with status 403",
            "access rules",
        ),
        ((404, "not here"), "no Docker Engine answers there", "set it to the socket"),
        (
            (200, "<html>hello</html>"),
            "no Docker Engine answers there",
            "set it to the socket",
        ),
        ((200, "{}"), "no Docker Engine answers there", "set it to the socket"),
    ],
)
def test_an_answer_that_is_no_usable_engine_has_its_own_cause_and_fix(
    answer: tuple[int, str],
    cause: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering(tmp_path, {"": answer}) as host:
        text = refusal(host, monkeypatch)
    assert cause in text
    assert fix in text
    assert "systemctl start" not in text


def test_a_proxy_that_loses_its_engine_later_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"/version": version("1.44"), "": (502, "<html>502 Bad Gateway</html>")}
    with answering(tmp_path, answers) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        client = connect()
        with (
            pytest.raises(HostError, match=r"status 502.*check the proxy"),
            asking("list containers"),
        ):
            client.containers.list()


def test_a_wrong_place_for_the_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = refusal(f"unix://{tmp_path}/none.sock", monkeypatch)
    assert "does not exist" in missing
    assert "unset DOCKER_HOST" in missing
    assert "install" not in missing
    (tmp_path / "file").write_text("")
    assert "is no socket" in refusal(f"unix://{tmp_path}/file", monkeypatch)
    assert "is not on this host" in refusal("tcp://127.0.0.1:2375", monkeypatch)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_socket_of_another_user_names_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(tmp_path, {"": version("1.44")}) as host:
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        Path(host.removeprefix("unix://")).chmod(0o600)
        os.seteuid(65534)
        try:
            text = refusal(host, monkeypatch)
        finally:
            os.seteuid(0)
    assert "join the group docker" in text
