"""Which drive is under a path: samples, firmwares, namespaces, file systems differ;
names and slots do not matter."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.drives.compare import compare
from harness.drives.whatif import device_from, forecasts, ran_on
from harness.isolation.mounts import mount_of
from harness.records.environment import describe, disk
from harness.records.hosts import host_fingerprint, measured_on
from harness.records.record import Record
from harness.ssd import identity as identities
from harness.ssd.device import block_device, identify
from harness.ssd.drive import Drive, drive_path, save_drive
from harness.ssd.identity import DriveKey, drive_key
from harness.ssd.measure import Wanted, profile_name
from harness.ssd.profile import _key
from tests.harness.cap_tools import MIB, on_disk
from tests.harness.records import save
from tests.harness.ssd.drives import counted, make_drive
from tests.harness.ssd.loops import loop, mounted, mounted_loop
from tests.harness.ssd.test_ssd_identity import NVME, Host
from workloads.errors import InputError

SLOT = "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1"


def nvme(
    root: Path,
    changes: dict[str, str] | None = None,
    path: str = SLOT,
    number: str = "259:0",
) -> DriveKey:
    """Return the identity of a made-up NVMe drive, whose file system is that of the
    tests."""
    host = Host(root)
    host.disk(
        path,
        number,
        {**NVME, "wwid": "eui.0025385b61b00001", "nsid": "1", **(changes or {})},
    )
    device = block_device(host.mounted(number), sys=host.sys, proc=host.proc)
    return DriveKey(device.drive, device.drive_known_by)


@pytest.mark.parametrize(
    "changes",
    [
        {"device/serial": "S3HDNX0K100002"},
        {"wwid": "eui.0025385b61b00002"},
        {"nsid": "2"},
        {"device/firmware_rev": "GPNA9B4Q"},
    ],
    ids=["sample", "WWN", "namespace", "firmware"],
)
def test_two_samples_namespaces_or_firmwares_of_a_model_are_two_drives(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    found = nvme(tmp_path / "a")
    assert found.id
    assert found.id != nvme(tmp_path / "b", changes).id
    assert found.known_by.startswith("WWN, serial number")


def test_a_drive_stays_itself_in_another_slot_and_under_another_name(
    tmp_path: Path,
) -> None:
    moved = "pci0000:00/0000:05:00.0/nvme/nvme3/nvme3n1"
    assert (
        nvme(tmp_path / "a").id == nvme(tmp_path / "b", path=moved, number="259:7").id
    )


def test_namespaces_differ_by_the_kernels_name_where_there_is_no_number(
    tmp_path: Path,
) -> None:
    bare = {"wwid": "", "nsid": ""}
    other = SLOT.replace("nvme0n1", "nvme0n2")
    assert nvme(tmp_path / "a", bare).id != nvme(tmp_path / "b", bare, path=other).id


def test_a_file_system_is_a_part_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, uuid in enumerate(("0b7a", "11c4")):
        monkeypatch.setattr(identities, "uuid_of_mounted", lambda path, uuid=uuid: uuid)
        found.append(nvme(tmp_path / str(number)).id)
    assert found[0] != found[1]


def test_virtual_disks_without_a_serial_are_known_by_their_place_in_the_machine(
    tmp_path: Path,
) -> None:
    keys = []
    for root, place in (
        ("a", "virtio1/block/vda"),
        ("b", "virtio2/block/vda"),
        ("c", "virtio1/block/vdb"),
    ):
        host = Host(tmp_path / root)
        made = host.disk(f"pci0000:00/{place}", "254:0", {})
        (made / "device").symlink_to(made.parent.parent)
        device = block_device(host.mounted("254:0"), sys=host.sys, proc=host.proc)
        keys.append(device.drive)
        assert "place in the machine" in device.drive_known_by
        assert "serial" not in device.drive_known_by
    assert keys[0] != keys[1] and keys[0] == keys[2], (
        "the kernel's name depends on the order of the disks"
    )


def test_neither_serial_nor_uuid_is_shown_and_the_digest_is_salted_by_the_machine(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    layer = host.disk(SLOT, "259:0", NVME)
    mount = mount_of(host.mounted("259:0"), host.proc)
    keys = []
    for machine in ("3d1219c7", "ffff19c7"):
        (tmp_path / machine).write_text(machine + "\n")
        keys.append(drive_key(mount, host.mount, [layer], host.sys, tmp_path / machine))
    assert keys[0].id != keys[1].id
    assert len(keys[0].id) == 16
    shown = identify(host.mount, sys=host.sys, proc=host.proc).model_dump_json()
    assert "S3HDNX0K100001" not in shown
    assert identities.file_system_uuid(host.mount, mount) not in shown


def test_an_overlay_is_on_the_drive_of_its_upper_folder(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.disk("pci/host0/sda", "8:0", {"device/model": "DISK"})
    upper = tmp_path / "upper"
    upper.mkdir()
    (host.proc / "self/mountinfo").write_text(
        f"30 20 8:0 / {upper} rw - xfs /dev/sda rw\n"
        f"40 20 0:55 / {host.mount} rw - overlay overlay "
        f"rw,lowerdir=/l,upperdir={upper},workdir=/w\n"
    )
    found = [
        block_device(folder, sys=host.sys, proc=host.proc)
        for folder in (upper, host.mount)
    ]
    assert found[0].drive == found[1].drive
    assert found[0].file_system != found[1].file_system


def test_files_in_memory_have_no_drive_and_a_share_is_its_source(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    lines = {
        "tmpfs": f"40 20 0:50 / {host.mount} rw - tmpfs tmpfs rw\n",
        "one": f"40 20 0:50 / {host.mount} rw - nfs4 server:/one rw\n",
        "two": f"40 20 0:50 / {host.mount} rw - nfs4 server:/two rw\n",
    }
    found = {}
    for name, line in lines.items():
        (host.proc / "self/mountinfo").write_text(line)
        found[name] = block_device(host.mount, sys=host.sys, proc=host.proc).drive
    assert found["tmpfs"] == ""
    assert found["one"]
    assert found["one"] != found["two"]


def test_a_loop_is_known_by_its_file_even_if_the_file_is_a_copy() -> None:
    with mounted_loop(32 * MIB, direct=True) as (folder, image):
        first = block_device(folder)
        copy = image.with_name("copy")
        point = image.with_name("copy-mounted")
        subprocess.run(["sync", "-f", folder], check=True)
        shutil.copyfile(image, copy)
        with loop(copy, direct=True) as device:
            point.mkdir()
            # The same UUID twice: ext4 mounts it, if the journal is clean or replayed.
            subprocess.run(["mount", device, point], check=True)
            try:
                second = block_device(point)
                assert identities.uuid_of_mounted(point) == identities.uuid_of_mounted(
                    folder
                )
            finally:
                subprocess.run(["umount", point], check=True)
    assert first.numbers == second.numbers
    assert first.model == second.model
    assert first.drive != second.drive
    assert "backing file" in first.drive_known_by


def test_a_loop_attached_again_is_itself_until_it_is_formatted_anew() -> None:
    with contextmanager(on_disk)() as folder:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(32 * MIB)
        with loop(image, direct=True) as device, mounted(device, folder / "a") as point:
            first = block_device(point)
            assert disk(point)["drive"] == first.drive  # type: ignore[index]
        with loop(image, direct=True) as device:
            again = folder / "b"
            again.mkdir()
            subprocess.run(["mount", device, again], check=True)
            try:
                assert block_device(again).drive == first.drive
            finally:
                subprocess.run(["umount", again], check=True)
        with loop(image, direct=True) as device, mounted(device, folder / "c") as point:
            assert block_device(point).drive != first.drive


def test_the_kept_profile_of_a_drive_is_not_that_of_another(tmp_path: Path) -> None:
    with (
        mounted_loop(32 * MIB, direct=True) as (one, _),
        mounted_loop(32 * MIB, direct=True) as (two, _),
    ):
        keys = {_key(block_device(point), None, (8,)) for point in (one, two)}
        hosts = {host_fingerprint(describe(point)) for point in (one, two)}
        assert len(keys) == len(hosts) == 2


def on_drive(record: Record, profile: Drive, **disk: Any) -> Record:
    """Return a run as one on a bare drive."""
    who = profile.identity
    held = {
        "model": who.model,
        "size_bytes": who.capacity_bytes,
        "drive": who.drive,
        **disk,
    }
    return record.model_copy(update={"environment": {"disk": held}})


def test_runs_on_one_of_two_samples_are_measured_there_and_predicted_on_the_other() -> (
    None
):
    drives = [
        make_drive("one", model="M", drive="aaaa"),
        make_drive("two", model="M", drive="bbbb"),
    ]
    run = on_drive(counted("ginex", 1.5, disk_class="none"), drives[0])
    devices = [device_from(drive) for drive in drives]
    found = compare(devices, [run])
    assert {cell.device: cell.predicted for cell in found.cells} == {
        "one": False,
        "two": True,
    }
    assert not any("model and capacity" in note for note in found.notes)
    assert [
        entry.measured_s for device in devices for entry in forecasts([run], device)
    ] == [1.5, None]


@pytest.mark.parametrize(("profile", "run"), [("", "aaaa"), ("aaaa", ""), ("", "")])
def test_what_an_older_version_recorded_counts_by_model_and_capacity_and_a_note_states_so(
    profile: str, run: str
) -> None:
    drive = make_drive("one", model="M", drive=profile)
    records = [
        on_drive(counted("ginex", 1.5, disk_class="none"), drive, drive=run),
        on_drive(
            counted("diskgnn", 9.0, disk_class="none"),
            drive,
            drive=run,
            model="ANOTHER",
        ),
    ]
    device = device_from(drive)
    assert [ran_on(record, device) for record in records] == [True, False]
    notes = compare([device], records).notes
    assert any(
        note.startswith("one: 1 runs count by equal model and capacity alone")
        for note in notes
    )


def test_runs_on_two_drives_of_a_model_are_never_compared_or_averaged() -> None:
    drive = make_drive("one", model="M")
    places = [
        measured_on(on_drive(counted("ginex", 1.0), drive, drive=name).to_json())
        for name in ("a", "b", "a")
    ]
    assert places[0] != places[1]
    assert places[0] == places[2]
    old = on_drive(counted("ginex", 1.0), drive, drive="")
    del (unnamed := json.loads(json.dumps(old.environment)))["disk"]["drive"]
    assert host_fingerprint(unnamed) == host_fingerprint(old.environment), (
        "older fingerprints stay as they are"
    )


def test_a_profile_never_replaces_that_of_another_sample(tmp_path: Path) -> None:
    first, second = (
        make_drive("M", drive=f"{letter * 16}", firmware="F") for letter in "ab"
    )
    plain = Wanted(tmp_path)
    assert profile_name(plain, tmp_path, first.identity) == "MODEL M"
    save_drive(tmp_path, first.model_copy(update={"name": "MODEL M"}))
    assert profile_name(plain, tmp_path, first.identity) == "MODEL M", (
        "measured again, it replaces itself"
    )
    assert profile_name(plain, tmp_path, second.identity) == "MODEL M-bbbbbb"
    with pytest.raises(InputError, match="profile of another drive"):
        profile_name(Wanted(tmp_path, name="MODEL M"), tmp_path, second.identity)


def test_a_profile_of_an_older_version_is_kept_since_it_may_be_of_another_sample(
    tmp_path: Path,
) -> None:
    old = make_drive("M", firmware="F")
    new = make_drive("M", firmware="F", drive="b" * 16)
    save_drive(tmp_path, old.model_copy(update={"name": "MODEL M"}))
    assert profile_name(Wanted(tmp_path), tmp_path, new.identity) == "MODEL M-bbbbbb"
    with pytest.raises(InputError, match="older version"):
        profile_name(Wanted(tmp_path, name="MODEL M"), tmp_path, new.identity)


def test_a_stopped_profile_of_another_sample_keeps_its_points(tmp_path: Path) -> None:
    first, second = (
        make_drive("M", drive=f"{letter * 16}", firmware="F") for letter in "ab"
    )
    part = drive_path(tmp_path, "MODEL M").with_suffix(".part")
    part.parent.mkdir(parents=True)
    settings = {"model": "MODEL M", "drive": first.identity.drive}
    part.write_text(json.dumps({"settings": settings, "saved_at": time.time()}))
    assert profile_name(Wanted(tmp_path), tmp_path, first.identity) == "MODEL M"
    assert profile_name(Wanted(tmp_path), tmp_path, second.identity) == "MODEL M-bbbbbb"


def test_the_list_of_runs_has_their_drives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = make_drive("one", model="M")
    names = ("aaaa", "aaaa", "bbbb")
    save(
        tmp_path,
        *(on_drive(counted("ginex", 1.0), drive, drive=name) for name in names),
        counted("pyg+", 1.0),
    )
    with pytest.raises(SystemExit):
        main(["results", "list", "--results-root", str(tmp_path), "--json"])
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert sorted(str(run["drive"]) for run in runs) == ["None", "aaaa", "aaaa", "bbbb"]
    with pytest.raises(SystemExit):
        main(["results", "list", "--results-root", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "aaaa" in shown
    assert "bbbb" in shown
    assert "not recorded" in shown
