"""A cluster whose hosts are network namespaces of this machine: each has its own
address and ports, and can be stopped, killed or cut off as a host can."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.run_tools import REPOSITORY, command, environment

_SUBNET = "10.211.77"
_NUMBERS = itertools.count()


def can_make_namespaces() -> bool:
    """Return whether this user may make network namespaces with a bridge."""
    name = f"oc{os.getpid()}-probe"
    try:
        done = [
            _ip("netns", "add", name, check=False),
            _ip("link", "add", "ocprobe0", "type", "bridge", check=False),
        ]
    except OSError:
        return False
    _ip("netns", "del", name, check=False)
    _ip("link", "del", "ocprobe0", check=False)
    return not any(done)


def _ip(*arguments: str, check: bool = True) -> int:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, (arguments, done.stderr)
    return done.returncode


def documented() -> list[list[str]]:
    """Return the words of each command in the chapter on hosts of docs/vendor.md."""
    text = (REPOSITORY / "docs" / "vendor.md").read_text(encoding="utf-8")
    chapter = text.partition("## Many hosts")[2].partition("\n## ")[0]
    block = chapter.partition("```sh\n")[2].partition("```")[0]
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def _filled(words: list[str], places: dict[str, str]) -> list[str]:
    """Return a command with its placeholders replaced."""
    filled = []
    for word in words:
        for name, value in places.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


@dataclass
class Namespace:
    """One host: a network namespace with an address on the bridge."""

    name: str
    address: str

    def start(
        self, arguments: list[str], variables: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a program in the namespace."""
        return subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.name}", *arguments],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def pids(self) -> list[int]:
        """Return the processes in the namespace."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.name],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in done.stdout.split()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process in the namespace."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End every process in the namespace, as if its power was cut."""
        end = time.monotonic() + 30
        while self.pids() and time.monotonic() < end:
            self.signal(signal.SIGKILL)
            time.sleep(0.1)

    def cut(self) -> None:
        """Cut the host's link."""
        _ip("-n", self.name, "link", "set", "eth0", "down")


@dataclass
class Network:
    """A bridge with a namespace for each host; `driver` is the one of the driver."""

    root: Path
    bridge: str = field(default_factory=lambda: f"oc{os.getpid()}.{next(_NUMBERS)}")
    hosts: dict[str, Namespace] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("link", "set", self.bridge, "up")
        self.driver = self.add("driver")
        self.head = self.start_head()

    def add(self, name: str) -> Namespace:
        """Add a host without a program."""
        number = len(self.hosts) + 1
        host = Namespace(f"{self.bridge}-{name}", f"{_SUBNET}.{number}")
        inner = f"{self.bridge}n{number}"
        _ip("netns", "add", host.name)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", host.name)
        _ip("link", "add", inner, *pair)
        _ip("link", "set", inner, "master", self.bridge, "up")
        _ip("-n", host.name, "link", "set", "lo", "up")
        _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", host.name, "link", "set", "eth0", "up")
        self.hosts[name] = host
        return host

    def start_head(self) -> Namespace:
        """Start a cluster's head on a new host, by the documented command."""
        host = self.add(f"head{len(self.hosts)}")
        (line,) = (line for line in documented() if "--head" in line)
        self._ray(host, [*line, "--num-cpus", "0"], {})
        return host

    def start_node(self, name: str, label: str, variables: dict[str, str]) -> Namespace:
        """Start a labelled node of the cluster on a new host, by the documented
        command."""
        host = self.add(name)
        (line,) = (line for line in documented() if "--labels" in line)
        places = {"HEAD": self.head.address, "pm1743-a": label}
        self._ray(host, _filled(line, places), variables)
        return host

    def _ray(self, host: Namespace, line: list[str], variables: dict[str, str]) -> None:
        """Run a command of Ray on a host whose address is not the machine's own."""
        program = line[line.index("ray") + 1 :]
        own = ["--node-ip-address", host.address]
        small = ["--object-store-memory", str(80 << 20)]
        # A script `ray` may belong to another environment.
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        around = {**os.environ, **variables}
        starting = host.start([*ray, *program, *own, *small], around)
        out, err = starting.communicate(timeout=240)
        assert starting.returncode == 0, (out + err).decode()[-2000:]

    def bench(self, experiment: Path, *more: str) -> subprocess.Popen[bytes]:
        """Start the driver by the documented command, for another experiment."""
        (line,) = (line for line in documented() if "bench" in line)
        places = {"HEAD": self.head.address, "quick": str(experiment)}
        arguments = _filled(line[line.index("outcore") + 1 :], places)
        around = environment(self.root / "nowhere", self.root / "collected")
        quiet = ["--figures", "none", "--json"]
        return self.driver.start(command(*arguments, *quiet, *more), dict(around))

    def close(self) -> None:
        """End all programs, and remove the namespaces and the bridge."""
        for number, host in enumerate(self.hosts.values(), 1):
            host.signal(signal.SIGCONT)
            host.kill()
            _ip("netns", "del", host.name, check=False)
            _ip("link", "del", f"{self.bridge}n{number}", check=False)
        _ip("link", "del", self.bridge, check=False)
