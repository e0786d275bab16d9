"""Drives compared from records and profiles alone, with predictions where there is no
run; a page fetches nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.cli import main
from harness.drives.compare import compare
from harness.drives.comparison import DriveCell, DriveComparison
from harness.drives.notes import BEATEN, BURST
from harness.drives.page import CELLS, CLASSES, DRIVES, sentences, tables, write_page
from harness.drives.prices import Price, load_prices, price_of
from harness.drives.printing import browser
from harness.drives.whatif import Device, device_from, device_of
from harness.records.record import Record
from harness.ssd.drive import save_drive
from tests.harness.records import save
from tests.harness.ssd.drives import counted, make_drive
from workloads.errors import InputError

PRICES = {
    "aws-nvme/16": Price(price_per_gb=0.125, source="a list (April 2024)"),
    "aws-gp3/16": Price(price_per_gb=0.08, source="a list (April 2024)"),
}
EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "ssd-prices.yaml"


def classes(*names: str) -> list[Device]:
    return [device_of(name, Path("/nowhere")) for name in names]


def runs() -> list[Record]:
    return [
        counted("ginex", 2.6, disk_class="aws-nvme/16"),
        counted("ginex", 100.0, disk_class="aws-gp3/16"),
        counted("diskgnn", 0.6, disk_class="aws-nvme/16", reads=100, size=1 << 20),
        counted("diskgnn", 0.7, disk_class="aws-gp3/16", reads=100, size=1 << 20),
    ]


@pytest.fixture
def found() -> DriveComparison:
    return compare(classes("aws-nvme/16", "aws-gp3/16"), runs(), PRICES)


def cell_of(found: DriveComparison, device: str, system: str) -> DriveCell:
    (cell,) = (
        cell for cell in found.cells if (cell.device, cell.system) == (device, system)
    )
    return cell


def test_epochs_are_those_of_the_records(found: DriveComparison) -> None:
    cell = cell_of(found, "aws-gp3/16", "ginex")
    assert not cell.predicted
    assert (cell.epoch_s, cell.read_amplification, cell.verdict) == (
        100.0,
        1.5,
        "VALID",
    )
    assert cell.reads_per_s == pytest.approx(1000.0)
    assert cell.bytes_per_s == pytest.approx(4096e3)
    assert cell.device_share == pytest.approx(1.0)
    changed = [
        run.model_copy(
            update={"epochs": [run.epochs[0].model_copy(update={"seconds": 50.0})]}
        )
        for run in runs()
    ]
    again = cell_of(
        compare(classes("aws-nvme/16", "aws-gp3/16"), changed), "aws-gp3/16", "ginex"
    )
    assert again.epoch_s == 50.0


def test_growth_from_drive_to_drive_is_reported_for_each_system(
    found: DriveComparison,
) -> None:
    assert [system for system, *_ in found.growth()] == ["diskgnn", "ginex"]
    assert sentences(found) == [
        "diskgnn: 1.17x as long on aws-gp3/16 as on aws-nvme/16.",
        "ginex: 38x as long on aws-gp3/16 as on aws-nvme/16.",
    ]


def test_what_was_not_run_on_a_drive_is_predicted_and_stated_to_be() -> None:
    found = compare(classes("aws-nvme/16", "intel-s3510/4"), runs())
    cell = cell_of(found, "intel-s3510/4", "ginex")
    assert cell.predicted
    assert cell.reads_per_s is None
    assert cell.epoch_s == pytest.approx(100_000 / 17_000)
    assert any(
        note.startswith("PREDICTED, not measured, on intel-s3510/4")
        for note in found.notes
    )
    assert "(predicted)" in " ".join(sentences(found))
    assert any("predicted" in value for row in tables(found)[1].rows for value in row)


def test_price_and_performance_go_by_the_users_file(found: DriveComparison) -> None:
    cell = cell_of(found, "aws-gp3/16", "ginex")
    assert cell.per_price == pytest.approx(3600 / 100.0 / 80.0)
    assert any("April 2024" in note for note in found.notes)


def test_a_share_of_a_class_has_no_price_of_the_whole_and_the_note_states_how_to_give_one() -> (
    None
):
    prices = load_prices(EXAMPLE)
    found = compare(classes("aws-nvme/16", "aws-nvme"), runs(), prices)
    share, whole = found.sides
    assert share.price is None
    assert whole.price == prices["aws-nvme"]
    assert all(
        cell.per_price is None for cell in found.cells if cell.device == "aws-nvme/16"
    )
    (note,) = (note for note in found.notes if "has no price" in note)
    assert note.startswith(
        "aws-nvme/16 has no price: that of aws-nvme is of the whole drive"
    )
    own = {**prices, "aws-nvme/16": Price(price_per_gb=0.01, source="a share")}
    priced = compare(classes("aws-nvme/16"), runs(), own)
    assert priced.sides[0].price == own["aws-nvme/16"]
    assert not any("has no price" in note for note in priced.notes)
    named = compare(
        [device_from(make_drive("lab/a"))],
        [],
        {"lab": Price(price_per_gb=1.0, source="x")},
    )
    assert named.sides[0].price is None


def test_only_what_fio_measured_is_headed_by_fio(found: DriveComparison) -> None:
    assert [table.title for table in tables(found)] == [CLASSES, CELLS]
    limited = make_drive("held").model_copy(update={"disk_class": "aws-nvme/16"})
    mixed = compare(
        [device_from(make_drive("a")), device_from(limited), *classes("aws-gp3/16")], []
    )
    by_fio, by_limits = tables(mixed)
    assert by_fio.title == DRIVES
    assert [row[0] for row in by_fio.rows] == ["a", "held"]
    assert by_fio.rows[1][1].endswith("inside the limits of aws-nvme/16")
    assert by_limits.title == CLASSES
    assert [row[0] for row in by_limits.rows] == ["aws-gp3/16"]
    assert not any("µs" in head for head in by_limits.heads)
    assert "by fio and the limits of classes alone" in mixed.notes[0]
    assert (
        "by the limits of classes alone" in compare(classes("aws-gp3/16"), []).notes[0]
    )


def test_more_than_the_whole_drive_is_explained() -> None:
    # 100,000 reads of 4 KiB take 2.56 s within the limits.
    fast = [
        counted("ginex", 2.05, disk_class="aws-nvme/16"),
        counted("diskgnn", 2.6, disk_class="aws-nvme/16"),
    ]
    found = compare(classes("aws-nvme/16"), fast)
    shares = {cell.system: (cell.device_share, cell.above) for cell in found.cells}
    assert shares["ginex"][0] == pytest.approx(1.25, abs=0.01)
    assert shares["ginex"][1] == BURST
    assert shares["diskgnn"][1] == ""
    (row,) = (row for row in tables(found)[1].rows if row[1] == "ginex")
    assert any(text.endswith(f"% ({BURST})") for text in row)
    assert any(
        note.startswith("more than 100 % of the drive (burst), ginex on aws-nvme/16: ")
        for note in found.notes
    )
    drive = make_drive(iops=10_000.0)
    disk = {"model": drive.identity.model, "size_bytes": drive.identity.capacity_bytes}
    bare = counted("ginex", 5.0, disk_class="none").model_copy(
        update={"environment": {"disk": disk}}
    )
    on_drive = compare([device_from(drive)], [bare])
    assert on_drive.cells[0].above == BEATEN
    assert any("profile the drive again" in note for note in on_drive.notes)


def test_a_bare_drive_has_the_runs_of_its_own_kind(tmp_path: Path) -> None:
    drive = make_drive()
    disk = {"model": drive.identity.model, "size_bytes": drive.identity.capacity_bytes}
    mine = counted("ginex", 1.5, disk_class="none").model_copy(
        update={"environment": {"disk": disk}}
    )
    other = counted("ginex", 9.0, disk_class="none").model_copy(
        update={"environment": {"disk": {**disk, "model": "ANOTHER"}}}
    )
    found = compare([device_from(drive), *classes("aws-gp3/16")], [mine, other])
    cell = cell_of(found, "fast", "ginex")
    assert (cell.epoch_s, cell.predicted) == (1.5, False)
    assert cell_of(found, "aws-gp3/16", "ginex").predicted


def test_without_runs_drives_are_compared_by_fio_alone() -> None:
    found = compare(
        [device_from(make_drive("a")), device_from(make_drive("b", iops=5e4))], []
    )
    assert [side.figures["randread_4k_iops"] for side in found.sides] == [
        100_000,
        50_000,
    ]
    assert found.sides[0].figures["latency_64_p99_s"] == 150e-6
    assert found.cells == ()
    assert "by fio alone" in found.notes[0]


def test_workloads_are_never_mixed() -> None:
    small = [counted("ginex", 1.0, dim=64), counted("pyg+", 1.0, dim=64)]
    found = compare(classes("aws-nvme/16", "aws-gp3/16"), [*runs(), *small])
    assert found.systems == ("ginex", "diskgnn")
    assert "kron-d128" in found.workload
    assert any("1 other workloads" in note for note in found.notes)
    chosen = compare(classes("aws-nvme/16"), [*runs(), *small], dataset="kron-d128-d64")
    assert chosen.systems == ("pyg+", "ginex")
    with pytest.raises(InputError, match="kron-d128-d32"):
        compare(classes("aws-nvme/16"), runs(), dataset="kron-d128-d32")


def test_a_drive_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match="named twice"):
        compare(classes("aws-gp3", "aws-gp3"), runs())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[DriveComparison, Path]:
    """Write the page of a comparison whose first drive has a hostile name; return
    both."""
    folder = tmp_path_factory.mktemp("page")
    drive = make_drive("evil <script>alert(1)</script>")
    found = compare(
        [device_from(drive), *classes("aws-nvme/16", "aws-gp3/16")], runs(), PRICES
    )
    written = write_page(found, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in written
    )
    return found, folder


def test_the_page_is_whole_and_fetches_nothing(
    drawn: tuple[DriveComparison, Path],
) -> None:
    found, folder = drawn
    page = (folder / "ssd-report.html").read_text()
    assert "<script>" not in page
    assert "evil &lt;script&gt;" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert page.count("data:image/png;base64,") == 4
    for value in ("aws-gp3/16", "100x as long", "PREDICTED", "MODEL evil"):
        assert value in page
    rows = (folder / "ssd-epochs.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 * 2
    assert (
        json.loads((folder / "ssd-report.json").read_text())["workload"]
        == found.workload
    )


@pytest.mark.skipif(browser() is None, reason="no Chromium here to print the page")
def test_the_printed_page_is_tagged_titled_and_readable(
    drawn: tuple[DriveComparison, Path],
) -> None:
    pdf = (drawn[1] / "ssd-report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/StructTreeRoot" in pdf
    assert b"/Marked true" in pdf
    assert b"/Lang (en)" in pdf
    assert re.search(rb"/Title (\(SSDs compared: evil|<FEFF)", pdf)
    assert not re.search(rb"/CreationDate|/ModDate", pdf)


def test_without_a_browser_there_is_no_pdf_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: tuple[DriveComparison, Path]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    names = {path.name for path in write_page(drawn[0], tmp_path)}
    assert "ssd-report.pdf" not in names
    assert {"ssd-report.html", "ssd-report.json"} <= names


@pytest.mark.slow("harness/ssd", "harness/report", "harness/drives", seconds=8)
def test_the_same_comparison_gives_the_same_page(
    tmp_path: Path, drawn: tuple[DriveComparison, Path]
) -> None:
    again = write_page(drawn[0], tmp_path)
    assert [
        path.name
        for path in again
        if path.read_bytes() != (drawn[1] / path.name).read_bytes()
    ] == []


def test_compare_takes_profiles_of_other_hosts_and_runs_of_other_roots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_drive(tmp_path / "elsewhere", make_drive("theirs"))
    save(tmp_path / "runs", *runs())
    arguments = [
        "ssd",
        "compare",
        str(path),
        "aws-gp3/16",
        "--from",
        str(tmp_path / "runs"),
        "--json",
    ]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *arguments,
                "--results-root",
                str(tmp_path / "own"),
                "--prices",
                str(EXAMPLE),
            ]
        )
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert [drive["name"] for drive in found["drives"]] == ["theirs", "aws-gp3/16"]
    assert found["drives"][1]["price_per_tb"] is None, (
        "the price is of the whole drive, not of a share"
    )
    assert {(e["device"], e["system"], e["predicted"]) for e in found["epochs"]} == {
        ("theirs", "ginex", True),
        ("theirs", "diskgnn", True),
        ("aws-gp3/16", "ginex", False),
        ("aws-gp3/16", "diskgnn", False),
    }


def test_prices_come_as_yaml_or_csv_by_the_gb_or_by_the_drive(tmp_path: Path) -> None:
    table = tmp_path / "prices.csv"
    table.write_text(
        "# asked today\ndevice,price_per_gb,price,capacity_gb,currency,source\n"
        'lab,,120,960,€,"a shop, 2026-01-01"\naws-gp3,0.08,,,,list\n'
    )
    prices = load_prices(table)
    assert (prices["lab"].per_tb, prices["lab"].currency) == (125.0, "€")
    assert price_of(prices, "aws-gp3") == prices["aws-gp3"]
    assert price_of(prices, "aws-gp3/16") is None
    assert price_of(prices, "unknown", "") is None
    assert load_prices(EXAMPLE)["aws-nvme"].per_tb == pytest.approx(125.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.yaml", "a: {price_per_gb: 0.1}", "source"),
        ("p.yaml", "a: {price: 10, source: x}", "price and capacity_gb"),
        ("p.yaml", "a: {price_per_gb: -1, source: x}", "greater than 0"),
        ("p.yaml", "a: {prise: 1, source: x}", "prise"),
        ("p.yaml", "- a", "has no prices"),
        ("p.yaml", "a: [", "is not YAML"),
        ("p.csv", "name,price_per_gb\na,1\n", "column `device`"),
        ("p.csv", "device,price_per_gb,source\na,1,x,y\n", "more cells"),
        ("p.csv", "device,price_per_gb,source\na,1,x\na,2,x\n", "twice"),
        ("p.csv", "device,price_per_gb,source\na,cheap,x\n", "price_per_gb"),
    ],
)
def test_a_wrong_price_list_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_prices(path)


def test_the_workload_measured_on_the_most_drives_is_shown() -> None:
    many = [
        counted(system, 1.0, dim=64)
        for system in ("pyg+", "ginex", "ginex-pg", "ali+pg", "gnndrive")
    ]
    found = compare(classes("aws-nvme/16", "aws-gp3/16"), [*runs(), *many])
    assert found.systems == ("ginex", "diskgnn")
