"""examples/train.py by torchrun on two hosts: network namespaces of this machine,
joined by a virtual cable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import make_tiny

REPOSITORY = Path(__file__).parents[2]
# Each namespace has its end of the cable and an address there; it reaches nothing else.
CABLES = ("ocveth0", "ocveth1")
ADDRESSES = ("10.77.31.1", "10.77.31.2")
SETTINGS = [
    "--system",
    "gnndrive",
    "--epochs",
    "2",
    "--hidden",
    "16",
    "--memory",
    "24MiB",
]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[str, str]]:
    """Make two namespaces that reach only each other."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and ip (iproute2)")
    names = (f"outcore-{os.getpid()}-0", f"outcore-{os.getpid()}-1")
    made = []
    try:
        for name in names:
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(
                    f"no network namespace can be made here: {error.stderr.strip()}"
                )
            made.append(name)
        _ip(
            "link",
            "add",
            CABLES[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            CABLES[1],
            "netns",
            names[1],
        )
        for name, cable, address in zip(names, CABLES, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _start(
    hosts: tuple[str, str], number: int, dataset: Path, *more: str
) -> subprocess.Popen[str]:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--node-rank",
        str(number),
        "--master-addr",
        ADDRESSES[0],
        "--master-port",
        "29517",
    ]
    return subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            hosts[number],
            *torchrun,
            "examples/train.py",
            str(dataset),
            *SETTINGS,
            "--batch-size",
            "40",
            *more,
        ],
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": ".",
            "GLOO_SOCKET_IFNAME": CABLES[number],
            "OMP_NUM_THREADS": "1",
        },
    )


def _alone(dataset: Path) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "examples/train.py",
            str(dataset),
            *SETTINGS,
            "--batch-size",
            "80",
        ],
        cwd=REPOSITORY,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        timeout=240,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make the same dataset twice, one for each host."""
    root = tmp_path_factory.mktemp("hosts")
    found = tuple(
        make_tiny(root / name / "tiny", nodes=4_000, edges=40_000, dim=64).path
        for name in ("one", "two")
    )
    return found[0], found[1]


@pytest.mark.slow("systems/loading", "examples", "workloads/ranks.py", seconds=55)
def test_two_hosts_take_the_steps_of_one_process(
    hosts: tuple[str, str], datasets: tuple[Path, Path]
) -> None:
    running = [_start(hosts, number, datasets[number]) for number in (0, 1)]
    message = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0, 0], message
    together = json.loads(message[0][0].splitlines()[-1])
    alone = _alone(datasets[0])
    assert message[1][0].strip() == ""  # only the first host prints
    for ours, theirs in zip(together["curve"], alone["curve"], strict=True):
        # The mean of two halves' gradients is the same step with other rounding.
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.01)
    assert together["test"] == pytest.approx(alone["test"], abs=0.01)


@pytest.mark.slow("systems/loading", "examples", "workloads/ranks.py", seconds=45)
def test_when_one_host_fails_the_other_ends_too(
    hosts: tuple[str, str], datasets: tuple[Path, Path]
) -> None:
    running = [
        _start(hosts, number, datasets[number], "--epochs", "10000")
        for number in (0, 1)
    ]
    try:
        assert running[0].stdout is not None
        assert running[0].stdout.readline().startswith("epoch 0")
        for pid in _processes(hosts[1]):
            os.kill(pid, signal.SIGKILL)
        _, errors = running[0].communicate(timeout=240)
        assert running[0].returncode != 0
        assert errors
    finally:
        for name in hosts:
            for pid in _processes(name):
                os.kill(pid, signal.SIGKILL)
        for process in running:
            process.wait()


def _processes(host: str) -> list[int]:
    """List all processes of a host; torchrun starts its workers in other sessions."""
    done = subprocess.run(
        ["ip", "netns", "pids", host], check=True, capture_output=True, text=True
    )
    return [int(pid) for pid in done.stdout.split()]
