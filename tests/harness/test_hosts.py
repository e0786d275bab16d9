"""Runs of two hosts, disks or devices are never averaged, never drawn as one series,
and never resumed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.common import Progress
from harness.compare.cells import Cells
from harness.compare.verdicts import NotDrawn
from harness.figures.draw.captions import caption
from harness.hosts.node import own_environment
from harness.plan.experiment import parse_experiment, resolve
from harness.records.code import code_of
from harness.records.environment import describe, this_host
from harness.records.hosts import (
    host_fingerprint,
    host_name,
    measured_on,
    profile_digests,
)
from harness.records.record import Code, Record
from harness.results.store import runs_folder
from harness.run.sweep import Sweep
from tests.harness.figure_profile import cells
from tests.harness.records import make_record, save
from tests.harness.run_tools import outcore_here
from tests.support import make_tiny

HOST: dict[str, Any] = {
    "cpu": {"model": "A", "usable": 2, "governor": None},
    "memory": {"total_bytes": 25_276_510_208},
    "disk": {
        "name": "vda",
        "number": "254:0",
        "model": "virtio",
        "file_system": "ext4",
        "size_bytes": 10**11,
    },
    "gpu": [],
    "accelerators": {"a10g": "aaa"},
}


def on(record: Record, **changes: Any) -> Record:
    """Return the record as another host would have made it."""
    return record.model_copy(update={"environment": {**HOST, **changes}})


def dims(root: Path) -> Cells:
    return cells(
        root,
        {
            dim: {"dataset": "kron-d128" if dim == 128 else f"kron-d128-d{dim}"}
            for dim in (64, 128)
        },
    )


def test_a_fingerprint_changes_with_the_hardware_and_not_with_names_or_versions(
    tmp_path: Path,
) -> None:
    same = {
        **HOST,
        "disk": {**HOST["disk"], "name": "vdb", "number": "254:16"},
        "versions": {"torch": "9"},
    }
    same["memory"] = {"total_bytes": 25_276_510_208 + 2**20}
    assert host_fingerprint(HOST) == host_fingerprint(same)
    for part, value in (
        ("cpu", {"model": "B", "usable": 2}),
        ("cpu", {"model": "A", "usable": 1}),
        ("memory", {"total_bytes": 2**33}),
        ("disk", {**HOST["disk"], "model": "nvme"}),
        ("disk", {**HOST["disk"], "file_system": "xfs"}),
        ("gpu", [{"model": "G", "memory_bytes": 1, "driver": "1"}]),
    ):
        assert host_fingerprint({**HOST, part: value}) != host_fingerprint(HOST), part
    assert host_fingerprint({}) == ""
    described = describe(tmp_path)
    assert (
        described["host_fingerprint"]
        == host_fingerprint(described)
        == this_host(tmp_path)
        != ""
    )
    assert set(described["accelerators"]) >= {"a10g"}


def test_an_emulated_device_is_known_by_its_coefficients(tmp_path: Path) -> None:
    profile = tmp_path / "x.toml"
    digests = []
    for text in (
        "[step_s]\nvalue = 1.0\nsource = 'a'",
        "[step_s]\nvalue = 1.0\nsource = 'b'",
        "[step_s]\nvalue = 2.0",
    ):
        profile.write_text(text)
        digests.append(profile_digests(tmp_path)["x"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": {"model": "B", "usable": 2}},
        {"disk": {"model": "nvme"}},
        {"accelerators": {"a10g": "bbb"}},
    ],
    ids=["host", "disk", "accelerator"],
)
def test_runs_of_another_host_disk_or_device_are_left_out_and_the_caption_states_so(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    for dim in (64, 128):
        for number in range(2):
            save(tmp_path, on(make_record("gnndrive", [1.0], dim=dim, round=number)))
        save(tmp_path, on(make_record("gnndrive", [99.0], dim=dim), **other))
        save(tmp_path, on(make_record("pyg+", [98.0], dim=dim), **other))
    drawn = dims(tmp_path)
    places = {str(measured_on(record)) for record in drawn.runs["record"]}
    assert len(places) == 1
    assert drawn.elsewhere == 4
    assert set(drawn.medians()["value"]) in ({1.0}, {99.0, 98.0})
    assert f"{drawn.elsewhere} runs of other hosts or devices left out" in caption(
        drawn, drawn.medians()
    )


def test_one_point_on_each_of_two_hosts_is_no_curve(tmp_path: Path) -> None:
    save(tmp_path, on(make_record("gnndrive", [1.0], dim=64)))
    save(
        tmp_path,
        on(make_record("gnndrive", [2.0], dim=128), cpu={"model": "B", "usable": 2}),
    )
    with pytest.raises(NotDrawn, match="no comparable runs"):
        dims(tmp_path)


def test_an_axis_over_disk_classes_has_a_limit_a_point(tmp_path: Path) -> None:
    for name, iops in (("aws-nvme", 10), ("aws-gp3", 20)):
        record = make_record("gnndrive", [1.0], disk_class=name)
        limits = {"limits": [{"device": "254:0", "read_iops": iops}]}
        save(
            tmp_path, on(record.model_copy(update={"disk": {**record.disk, **limits}}))
        )
    drawn = cells(
        tmp_path, {name: {"disk_class": name} for name in ("aws-nvme", "aws-gp3")}
    )
    assert drawn.count == 2


def test_one_disk_class_with_other_limits_is_another_disk(tmp_path: Path) -> None:
    for dim, iops in ((64, 10), (128, 20)):
        record = make_record("gnndrive", [1.0], dim=dim)
        limits = {"limits": [{"device": "254:0", "read_iops": iops}]}
        save(
            tmp_path, on(record.model_copy(update={"disk": {**record.disk, **limits}}))
        )
    with pytest.raises(NotDrawn, match="no comparable runs"):
        dims(tmp_path)


def test_a_sweep_takes_up_its_own_hosts_records_of_todays_code_alone(
    tmp_path: Path,
) -> None:
    """Records of another host or code and records that cannot be read are kept, and
    their runs count as not run."""
    dataset = make_tiny(tmp_path / "data" / "tiny")
    experiment = parse_experiment(
        {
            "name": "x",
            "run": {"dataset": "tiny", "fanout": [2, 2]},
            "systems": ["in-memory"],
        }
    )
    here = describe(dataset.path)
    code = code_of("in-memory")
    for name, environment, made_by, done in (
        ("here", here, code, 1),
        ("there", here | {"cpu": {"model": "B", "usable": 2}}, code, 0),
        ("other drive", here | {"disk": here["disk"] | {"drive": "0" * 16}}, code, 0),
        ("other system", here, code.model_copy(update={"system": "0" * 16}), 0),
        ("other harness", here, code.model_copy(update={"harness": "0" * 16}), 0),
        ("older", here, Code(), 0),
    ):
        root = tmp_path / name
        sweep = Sweep([experiment], root, tmp_path / "data", Progress(quiet=True))
        config = resolve(sweep.planned[0], tmp_path / "data", "auto")
        record = make_record("in-memory", [1.0]).model_copy(
            update={
                "config": config,
                "config_hash": config.config_hash,
                "cell": config.cell,
                "environment": environment,
                "code": made_by,
            }
        )
        save(root, record)
        cut = runs_folder(root) / "20260101-000000-cut"
        cut.mkdir()
        (cut / "record.json").write_text("{")
        assert sweep.estimate().done == done


def test_hosts_that_their_operator_labels_differ() -> None:
    environment = {"cpu": {"model": "one", "usable": 2}, "disk": {"model": None}}
    alone = host_fingerprint(environment)
    labelled = {
        label: host_fingerprint({**environment, "host_label": label})
        for label in ("a", "b")
    }
    assert len({alone, *labelled.values()}) == 3
    assert labelled["a"] == host_fingerprint({**environment, "host_label": "a"})


def test_what_ray_sets_for_its_workers_does_not_reach_a_run() -> None:
    kept = own_environment(
        {
            "OMP_NUM_THREADS": "1",
            "RAY_JOB_ID": "1",
            "OUTCORE_DATA": "/d",
            "PATH": "/bin",
        }
    )
    assert set(kept) == {"OUTCORE_DATA", "PATH"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host-labels", "a"], "--host-labels needs --hosts; add --hosts ray://"),
        (
            ["--hosts", "ray://127.0.0.1:1", "--host-labels", "al pha/§"],
            "'al pha/§' is no label of a host; use up to 63 letters",
        ),
    ],
    ids=["without hosts", "no label"],
)
def test_labels_that_cannot_be_used_are_refused(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = outcore_here("bench", *arguments, data=tmp_path, results=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_hosts_are_named_after_their_label() -> None:
    environment = {**HOST, "host_label": "alpha"}
    fingerprint = host_fingerprint(environment)
    assert host_name(environment) == f"alpha ({fingerprint})"
    assert host_name(environment, 4) == f"alpha ({fingerprint[:4]})"
    assert host_name(HOST) == host_fingerprint(HOST)
