"""A sweep over the nodes of a real Ray cluster on this machine: placed by label, one
run at a time, none lost."""

from __future__ import annotations

import calendar
import itertools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Record
from harness.results import store as results
from tests.harness.run_tools import (
    MISBEHAVING,
    SETTINGS,
    command,
    environment,
    share_cache,
    workers_of,
)
from tests.support import make_tiny

pytest.importorskip("ray", reason="Ray is not installed: pip install outcore[hosts]")
# Ray's own processes take long to start, and to notice that one is gone.
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.slow(
        "harness/hosts",
        "harness/run/sweep.py",
        "harness/results/incoming.py",
        "harness/results/archive.py",
        seconds=200,
    ),
]

EXPERIMENT: dict[str, Any] = {
    "name": "fleet",
    "run": {**SETTINGS, "memory": "none"},
    "systems": [
        {"name": MISBEHAVING, "options": {"extract_seconds": 0.05}},
        "in-memory",
    ],
    "rounds": 1,
}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Ray cluster of processes on this machine, each with its own data and results as
    if it were a host."""

    def __init__(self, root: Path, factory: pytest.TempPathFactory) -> None:
        from ray.cluster_utils import Cluster as Nodes

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no usage reports
        self.root = root
        self.port = _free_port()
        self._factory = factory
        small = {
            "num_cpus": 1,
            "object_store_memory": 80 << 20,
            "include_dashboard": False,
        }
        self._nodes = Nodes(
            initialize_head=True,
            head_node_args={
                **small,
                "ray_client_server_port": self.port,
                "num_cpus": 0,
            },
        )
        self._small = small

    def add(self, label: str, name: str) -> Any:
        """Add a node of `label`."""
        data = self.root / name / "data"
        make_tiny(data / "tiny", nodes=20_000, edges=100_000, dim=64)
        share_cache(self.root / name / "results", self._factory)
        variables = environment(data, self.root / name / "results")
        wanted = {
            key: variables[key]
            for key in ("OUTCORE_DATA", "OUTCORE_RESULTS", "PYTHONPATH")
        }
        return self._nodes.add_node(
            **self._small, labels={"outcore-host": label}, env_vars=wanted
        )

    def lose(self, node: Any) -> None:
        """Remove a node as if its power was cut."""
        self._nodes.remove_node(node, allow_graceful=False)

    def data(self, name: str) -> Path:
        return self.root / name / "data"

    def close(self) -> None:
        self._nodes.shutdown()

    def bench(self, experiment: dict[str, Any], *more: str) -> subprocess.Popen[bytes]:
        """Start the driver as a user does."""
        file = self.root / "fleet.yaml"
        file.write_text(json.dumps(experiment))
        arguments = (
            "bench",
            str(file),
            "--figures",
            "none",
            "--json",
            "--hosts",
            f"ray://127.0.0.1:{self.port}",
            *more,
        )
        return subprocess.Popen(
            command(*arguments),
            env=environment(self.root / "nowhere", self.root / "collected"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def collected(self) -> list[Record]:
        return list(results.records(self.root / "collected"))


@pytest.fixture
def cluster(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    made = Cluster(tmp_path, tmp_path_factory)
    yield made
    made.close()


def _finish(driver: subprocess.Popen[bytes], expected: int = 0) -> dict[str, Any]:
    out, err = driver.communicate(timeout=1000)
    assert driver.returncode == expected, err.decode() + _reasons(out)
    content: dict[str, Any] = json.loads(out)
    return content


def _reasons(out: bytes) -> str:
    """Return the reasons of failed runs, and of hosts and labels that were left out."""
    content = json.loads(out or b"{}")
    failed = [record["reason"] for record in content.get("records", ())]
    left_out = content.get("hosts_left_out")
    return str([failed, left_out, content.get("labels_without_runs")])


def _placed(records: list[Record]) -> dict[tuple[str, str, int], str]:
    return {
        (
            record.environment["host_label"],
            record.system,
            record.config.round,
        ): record.status
        for record in records
    }


def _wait_for(path: Path, driver: subprocess.Popen[bytes]) -> None:
    """Wait until a run is under way on the host whose data is at `path`."""
    end = time.monotonic() + 400
    while not any(_is_worker(pid) for pid in workers_of(path)):
        if driver.poll() is not None or time.monotonic() > end:
            driver.kill()
            pytest.fail(f"no run has begun: {driver.communicate()[1].decode()}")
        time.sleep(0.05)


def _is_worker(pid: int) -> bool:
    try:
        return b"harness.worker.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_each_label_gets_every_run_one_at_a_time_and_the_next_sweep_does_nothing(
    cluster: Cluster,
) -> None:
    cluster.add("alpha", "one")
    cluster.add("beta", "two")
    content = _finish(cluster.bench(EXPERIMENT))
    records = cluster.collected()
    assert content["skipped"] == 0
    assert len(content["records"]) == 4
    everything = [
        (label, system, 0)
        for label in ("alpha", "beta")
        for system in (MISBEHAVING, "in-memory")
    ]
    assert _placed(records) == dict.fromkeys(everything, "ok")
    # Two labels are two kinds of host, whatever their hardware says.
    assert len({record.environment["host_fingerprint"] for record in records}) == 2
    # Both sit on this machine: their runs took turns.
    spans = sorted(
        (_began(record), _began(record) + record.duration_s) for record in records
    )
    assert all(begin >= end - 1.0 for (_, end), (begin, _) in itertools.pairwise(spans))
    # Telemetry and stages came along.
    folder = results.runs_folder(cluster.root / "collected") / records[0].run_id
    assert {"stages.parquet", "batches.parquet"} <= {
        path.name for path in folder.iterdir()
    }
    # Other work on this machine may have spoilt them.
    again = _finish(cluster.bench(EXPERIMENT, "--no-retry"))
    assert again["skipped"] == 4
    assert again["records"] == []


def _began(record: Record) -> int:
    """Return when the run began, rounded down to a second."""
    return calendar.timegm(time.strptime(record.started_at, "%Y-%m-%dT%H:%M:%SZ"))


def test_a_node_lost_in_a_run_is_replaced_by_another_of_its_label(
    cluster: Cluster,
) -> None:
    slow = {
        **EXPERIMENT,
        "systems": [{"name": MISBEHAVING, "options": {"extract_seconds": 1.0}}],
    }
    first = cluster.add("alpha", "one")
    driver = cluster.bench(slow)
    _wait_for(cluster.data("one"), driver)
    cluster.add("alpha", "two")
    cluster.lose(first)
    content = _finish(driver)
    assert [record["status"] for record in content["records"]] == ["ok"]
    assert _placed(cluster.collected()) == {("alpha", MISBEHAVING, 0): "ok"}
    _gone(cluster.data("one"))


def test_runs_of_a_label_without_hosts_are_recorded_and_made_when_it_returns(
    cluster: Cluster,
) -> None:
    slow = {
        **EXPERIMENT,
        "systems": [{"name": MISBEHAVING, "options": {"extract_seconds": 1.0}}],
    }
    node = cluster.add("alpha", "one")
    driver = cluster.bench(slow, "--wait-for-hosts", "3s")
    _wait_for(cluster.data("one"), driver)
    cluster.lose(node)
    content = _finish(driver, expected=1)
    assert [record["status"] for record in content["records"]] == ["failed"]
    assert all(
        "no host of label alpha" in record["reason"] for record in content["records"]
    )
    _gone(cluster.data("one"))
    cluster.add("alpha", "one-again")
    content = _finish(cluster.bench(slow))
    assert [record["status"] for record in content["records"]] == ["ok"]


def test_a_driver_that_dies_leaves_no_run_behind(cluster: Cluster) -> None:
    slow = {
        **EXPERIMENT,
        "systems": [{"name": MISBEHAVING, "options": {"extract_seconds": 2.0}}],
    }
    cluster.add("alpha", "one")
    driver = cluster.bench(slow)
    _wait_for(cluster.data("one"), driver)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    _gone(cluster.data("one"), within_s=120)


def _gone(path: Path, within_s: float = 60) -> None:
    end = time.monotonic() + within_s
    while workers_of(path):
        assert time.monotonic() < end, f"still there: {workers_of(path)}"
        time.sleep(0.1)


def test_without_a_labelled_host_it_states_how_to_label_one(cluster: Cluster) -> None:
    driver = cluster.bench(EXPERIMENT, "--wait-for-hosts", "1s")
    _, err = driver.communicate(timeout=300)
    assert driver.returncode == 2
    assert b"--labels outcore-host=NAME" in err


@pytest.mark.slow("harness/hosts", seconds=20)
def test_without_a_cluster_it_states_so(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(json.dumps(EXPERIMENT))
    done = subprocess.run(
        command(
            "bench",
            str(tmp_path / "fleet.yaml"),
            "--hosts",
            f"ray://127.0.0.1:{_free_port()}",
        ),
        env=environment(tmp_path / "data", tmp_path / "results"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 3
    assert "no Ray cluster answers" in done.stderr
