"""A sweep over hosts with addresses of their own, which break as hosts do: stopped, cut
off, full, without a package, of another commit, without their head."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Record
from harness.results import store as results
from tests.harness.network_tools import Namespace, Network, can_make_namespaces
from tests.harness.run_tools import (
    MISBEHAVING,
    SETTINGS,
    command,
    environment,
    outcore,
    share_cache,
    workers_of,
)
from tests.support import make_tiny

pytest.importorskip("ray", reason="Ray is not installed: pip install outcore[hosts]")
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.slow("harness/hosts", "harness/run/sweep.py", seconds=240),
    pytest.mark.skipif(
        os.geteuid() != 0 or not can_make_namespaces(),
        reason="needs root and network namespaces",
    ),
]

ROUNDS = 3


def experiment(seconds: float = 0.0, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return an experiment whose batches take this long."""
    options = {"extract_seconds": seconds}
    return {
        "name": "network",
        "run": {**SETTINGS, "memory": "none"},
        "systems": [{"name": MISBEHAVING, "options": options}],
        "rounds": rounds,
    }


class Hosts:
    """A network of hosts, each with its own data, results and temporary files."""

    def __init__(self, root: Path, factory: pytest.TempPathFactory) -> None:
        self.network = Network(root)
        self.root = root
        self.factory = factory

    def add(self, name: str, label: str = "alpha", **variables: str) -> Namespace:
        """Add a node of a label with further environment variables."""
        data = self.root / name / "data"
        make_tiny(data / "tiny", nodes=20_000, edges=100_000, dim=64)
        if not (self.root / name / "results").exists():
            share_cache(self.root / name / "results", self.factory)
        (self.root / name / "tmp").mkdir()
        around = environment(data, self.root / name / "results")
        around |= {"TMPDIR": str(self.root / name / "tmp"), "RAY_TMPDIR": "/tmp"}
        return self.network.start_node(name, label, around | variables)

    def bench(self, content: dict[str, Any], *more: str) -> subprocess.Popen[bytes]:
        """Start the driver."""
        file = self.root / "network.yaml"
        file.write_text(json.dumps(content))
        return self.network.bench(file, *more)

    def collected(self) -> list[Record]:
        return list(results.records(self.root / "collected"))

    def wait_for_run(self, name: str, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a run trains on a host."""
        end = time.monotonic() + 400
        while not any(map(_is_worker, workers_of(self.root / name / "data"))):
            if driver.poll() is not None or time.monotonic() > end:
                driver.kill()
                pytest.fail(f"no run has begun: {driver.communicate()[1].decode()}")
            time.sleep(0.05)


@pytest.fixture
def hosts(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path, tmp_path_factory)
    yield made
    made.network.close()


def _is_worker(pid: int) -> bool:
    try:
        return b"harness.worker.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _finish(
    driver: subprocess.Popen[bytes], expected: int = 0
) -> tuple[dict[str, Any], str]:
    out, err = driver.communicate(timeout=1000)
    assert driver.returncode == expected, err.decode() + _reasons(out)
    assert b"Traceback" not in err
    return json.loads(out) if expected < 2 else {}, err.decode()


def _reasons(out: bytes) -> str:
    """Return the reasons of failed runs, and of hosts and labels that were left out."""
    content = json.loads(out or b"{}")
    failed = [record["reason"] for record in content.get("records", ())]
    left_out = content.get("hosts_left_out")
    return str([failed, left_out, content.get("labels_without_runs")])


def _statuses(content: dict[str, Any]) -> list[str]:
    return [record["status"] for record in content["records"]]


def test_two_labels_are_named_in_every_view_and_the_next_call_shows_all_runs(
    hosts: Hosts,
) -> None:
    hosts.add("one", "alpha")
    hosts.add("two", "beta")
    content, _ = _finish(hosts.bench(experiment(rounds=1)))
    assert _statuses(content) == ["ok", "ok"]
    records = hosts.collected()
    assert len({record.run_id for record in records}) == 2
    # Other work on this machine may have spoilt them.
    again, _ = _finish(hosts.bench(experiment(rounds=1), "--no-retry"))
    assert (again["records"], again["skipped"]) == ([], 2)
    assert set(again["rows"]) == {record.run_id for record in records}
    root = hosts.root / "collected"
    for verb in (["list"], ["show", "latest"]):
        shown = outcore("results", *verb, data=hosts.root / "nowhere", results=root)
        assert "host" in shown.stdout
        assert "beta" in shown.stdout or "alpha" in shown.stdout
    listed = outcore("results", "list", data=hosts.root / "nowhere", results=root)
    assert "alpha (" in listed.stdout
    assert "beta (" in listed.stdout


def test_broken_hosts_are_left_out_by_name_and_the_healthy_one_runs_everything(
    hosts: Hosts,
) -> None:
    stub = hosts.root / "stub"
    stub.mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'pandas'\")\n"
    (stub / "pandas.py").write_text(missing)
    other = hosts.root / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    commit = ["commit", "-q", "--allow-empty", "-m", "other"]
    subprocess.run(["git", "-C", str(other), *author, *commit], check=True)
    full = hosts.root / "full" / "results"
    full.mkdir(parents=True)
    small = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)]
    subprocess.run(small, check=True)
    try:
        path = f"{stub}:{environment(stub, stub)['PYTHONPATH']}"
        hosts.add("bare", PYTHONPATH=path)
        hosts.add("other-commit", GIT_DIR=str(other / ".git"))
        hosts.add("full")
        hosts.add("healthy")
        content, _ = _finish(hosts.bench(experiment()))
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
    assert _statuses(content) == ["ok"] * ROUNDS
    out = content["hosts_left_out"]
    assert len(out) == 3
    assert all(host.startswith("alpha/") for host in out)
    reasons = " ".join(out.values())
    assert "No module named 'pandas'" in reasons
    assert "pip install 'outcore[hosts]' there" in reasons
    assert "it runs commit" in reasons
    assert "No space left on device" in reasons
    assert len(hosts.collected()) == ROUNDS


def test_a_stopped_host_is_named_and_its_run_is_repeated_on_another(
    hosts: Hosts,
) -> None:
    first = hosts.add("one")
    driver = hosts.bench(experiment(1.0, rounds=1), "--wait-for-hosts", "10s")
    hosts.wait_for_run("one", driver)
    hosts.add("two")
    first.signal(signal.SIGSTOP)
    out, err = driver.communicate(timeout=600)
    content = json.loads(out)
    assert driver.returncode == 0, err.decode()
    assert _statuses(content) == ["ok"]
    assert [record.environment["host_label"] for record in hosts.collected()] == [
        "alpha"
    ]


def test_a_host_whose_link_is_cut_is_replaced_by_another(hosts: Hosts) -> None:
    first = hosts.add("one")
    driver = hosts.bench(experiment(1.0, rounds=1), "--wait-for-hosts", "10s")
    hosts.wait_for_run("one", driver)
    hosts.add("two")
    first.cut()
    content, _ = _finish(driver)
    assert _statuses(content) == ["ok"]


def test_a_killed_head_ends_the_sweep_in_a_sentence_and_a_new_one_goes_on(
    hosts: Hosts,
) -> None:
    node = hosts.add("one")
    driver = hosts.bench(experiment(1.0))
    hosts.wait_for_run("one", driver)
    hosts.network.head.kill()
    _, err = _finish(driver, expected=3)
    assert (
        f"the Ray cluster at ray://{hosts.network.head.address}:10001 was lost" in err
    )
    assert "the same command goes on" in err
    node.kill()
    hosts.network.head = hosts.network.start_head()
    kept = {record.run_id for record in hosts.collected()}
    made = {path.name for path in results.run_folders(hosts.root / "one" / "results")}
    around = environment(hosts.root / "one" / "data", hosts.root / "one" / "results")
    hosts.network.start_node("one-again", "alpha", dict(around))
    _finish(hosts.bench(experiment(1.0), "--no-retry"))
    runs = {record.run_id for record in hosts.collected()}
    assert len(runs) == ROUNDS
    assert kept | made <= runs, "no finished run is lost or made twice"


def test_a_port_that_is_not_that_of_clients_is_named_at_once(hosts: Hosts) -> None:
    file = hosts.root / "network.yaml"
    file.write_text(json.dumps(experiment()))
    address = f"ray://{hosts.network.head.address}:6379"
    around = environment(hosts.root / "nowhere", hosts.root / "collected")
    arguments = ["bench", str(file), "--hosts", address]
    driver = hosts.network.driver.start(command(*arguments), dict(around))
    _, err = _finish(driver, expected=3)
    assert "the port is not that of Ray's clients" in err
    assert "--ray-client-server-port" in err
