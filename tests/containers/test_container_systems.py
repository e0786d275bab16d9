"""A system in its own image: the example runs and equals the system that it wraps;
labels of images are checked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.foreign.systems import _of_image, image_of, system_info
from harness.isolation.docker.engine import connect
from harness.isolation.docker.image import HOST_IMAGE, find
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from tests.harness.isolation.docker_tools import containers, needs_docker, one_file
from tests.harness.run_tools import left_behind, outcore, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import InputError

pytestmark = [needs_docker, pytest.mark.usefixtures("engine_alone")]
EXAMPLE = Path(__file__).resolve().parents[2] / "containers" / "example"
NAME = "outcore-test-example:1"


@pytest.fixture(scope="module")
def example() -> Iterator[str]:
    client = connect()
    base = find(client, HOST_IMAGE).name
    client.images.build(path=str(EXAMPLE), tag=NAME, buildargs={"BASE": base}, rm=True)
    yield f"image:{NAME}"
    client.images.remove(NAME, force=True)
    _of_image.cache_clear()


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    root = tmp_path_factory.mktemp("foreign")
    make_tiny(root / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data", isolation="docker") as opened:
        yield opened
    assert containers() == []


def run(series: Series, system: str, **changes: object) -> Record:
    settings = RunSettings.model_validate(
        {
            "dataset": "tiny",
            "fanout": [5, 5],
            "batch_size": 100,
            "max_batches": 4,
            "epochs": 2,
            "warmup": 1,
            "hidden": 16,
            "memory": "+64MiB",
            "timeout": 100.0,
            "verify": True,
            **changes,
        }
    )
    wanted = resolve(
        PlannedRun(system, settings), series.data_root, series.isolation.name
    )
    record = execute(series, wanted, Dataset.open(series.data_root / "tiny"))
    assert left_behind(series) == []
    return record


@pytest.mark.slow(
    "containers",
    "harness/isolation/docker",
    "harness/run/launch.py",
    "harness/worker/main.py",
    seconds=50,
)
def test_the_example_equals_the_system_that_it_wraps(
    series: Series, example: str
) -> None:
    theirs = run(series, example, options={"extractors": 2}, keep_order=True)
    ours = run(series, "gnndrive", options={"extractors": 2}, keep_order=True)
    assert theirs.status == ours.status == "ok", (theirs.reason, ours.reason)
    for mine, other in zip(theirs.epochs, ours.epochs, strict=True):
        assert mine.digest == other.digest
        assert mine.feature_digest == other.feature_digest
        assert mine.counters["rows"] == other.counters["rows"]
        assert mine.batches == other.batches
        assert mine.loss == pytest.approx(other.loss, rel=1e-4)
        assert set(mine.stages_s) == set(other.stages_s)
        assert mine.device_bytes is not None
    assert theirs.memory.floor_bytes > 50 << 20
    assert theirs.memory.plan
    rules = {rule.name: rule.ok for rule in theirs.verdict_rules}
    assert rules["digests_equal_the_workload"]


@pytest.mark.slow(
    "containers",
    "harness/isolation/docker",
    "harness/run/launch.py",
    "harness/worker/main.py",
)
def test_training_times_of_an_image_are_never_taken_for_ours(
    series: Series, example: str, tmp_path: Path
) -> None:
    counts = []
    with Series(
        tmp_path / "results", series.data_root, isolation="docker"
    ) as own:  # with no times yet
        for system, memory in ((example, "+64MiB"), ("in-memory", "none")):
            assert run(own, system, memory=memory).status == "ok"
            kept = (own.results_root / "cache").glob("training-*.json")
            counts.append(sorted(file.name.count("-") for file in kept))
    assert counts == [[2], [1, 2]]


@pytest.mark.slow(
    "containers",
    "harness/isolation/docker",
    "harness/foreign",
    "harness/cli/run.py",
    seconds=30,
)
def test_an_option_of_an_image_is_checked_like_any(
    example: str, tmp_path: Path
) -> None:
    info = system_info(example)
    assert info.name == "example"
    assert info.faithful
    assert info.devices == ("cpu",)
    make_tiny(tmp_path / "data" / "tiny")
    for option, message in (
        ("extractor=2", "did you mean 'extractors'"),
        ("extractors=many", "valid integer"),
    ):
        done = outcore(
            "run",
            example,
            "--dataset",
            "tiny",
            "-o",
            option,
            "--isolation",
            "docker",
            data=tmp_path / "data",
            results=tmp_path / "results",
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow(
    "containers", "harness/isolation/docker", "harness/foreign", "harness/cli/run.py"
)
def test_an_image_needs_the_backend_for_images(example: str, tmp_path: Path) -> None:
    make_tiny(tmp_path / "data" / "tiny")
    done = outcore(
        "run",
        example,
        "--dataset",
        "tiny",
        "--isolation",
        "none",
        "--fanout",
        "3",
        "--epochs",
        "2",
        data=tmp_path / "data",
        results=tmp_path / "results",
    )
    assert "--isolation docker" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "no labels org.outcore.worker"),
        (["LABEL org.outcore.worker='[]x'"], "is not JSON"),
        (
            [
                "LABEL org.outcore.worker='[\"w\"]' "
                'org.outcore.system=\'{"name": "x", "fast": true}\''
            ],
            "fast: Extra",
        ),
        (
            ["LABEL org.outcore.worker='[\"w\"]' org.outcore.system='{\"name\": 3}'"],
            "name: Input should be",
        ),
    ],
)
def test_labels_that_are_wrong_are_named(labels: list[str], message: str) -> None:
    client = connect()
    name = "outcore-test-labels:1"
    client.api.import_image_from_data(
        one_file(),
        repository=name.split(":")[0],
        tag="1",
        changes=["LABEL org.outcore.layout=host", *labels],
    )
    try:
        with pytest.raises(InputError, match=message):
            system_info(f"image:{name}")
    finally:
        client.images.remove(name, force=True)


@pytest.mark.slow(
    "containers", "harness/isolation/docker", "harness/run/calibrate.py", seconds=25
)
def test_a_worker_that_cannot_start_fails_its_run(series: Series) -> None:
    client = connect()
    base = find(client, HOST_IMAGE).name
    file = (
        f"FROM {base}\nLABEL org.outcore.worker='[\"/nowhere\"]' "
        f'org.outcore.system=\'{{"name": "broken"}}\'\n'
    )
    client.images.build(
        fileobj=io.BytesIO(file.encode()), tag="outcore-test-broken:1", rm=True
    )
    try:
        record = run(series, "image:outcore-test-broken:1")
    finally:
        client.images.remove("outcore-test-broken:1", force=True)
    assert record.status in ("failed", "unsupported")
    assert "calibration failed" in record.reason
    assert "/nowhere" in record.reason


def test_names_of_images_are_reported_from_names_of_classes() -> None:
    assert image_of("image:one/two:3") == "one/two:3"
    assert image_of("gnndrive") is None
    assert image_of("package.module:Class") is None
