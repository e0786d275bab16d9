"""A drive's identity, from the kernel's own files: links, layers, queues; its serial
number only on request."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from harness.ssd.device import block_device, identify, layers
from harness.ssd.smart import health, parse_nvme, parse_smartctl


class Host:
    """Made-up /sys and /proc with one mount at /drive."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.proc = root / "proc"
        self.mount = root / "drive"
        for folder in (
            self.sys / "block",
            self.sys / "dev/block",
            self.proc / "self",
            self.mount,
        ):
            folder.mkdir(parents=True)

    def disk(self, path: str, number: str, files: dict[str, str]) -> Path:
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"dev": number, "size": "2000000000", **files}.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        (self.sys / "dev/block" / number).symlink_to(folder)
        if "partition" not in files:
            (self.sys / "block" / folder.name).symlink_to(folder)
        return folder

    def mounted(
        self, number: str, kind: str = "ext4", options: str = "rw,discard"
    ) -> Path:
        line = f"40 20 {number} / {self.mount} rw,noatime - {kind} /dev/x {options}\n"
        (self.proc / "self/mountinfo").write_text(line)
        return self.mount


NVME = {
    "queue/logical_block_size": "512",
    "queue/physical_block_size": "4096",
    "queue/scheduler": "[none] mq-deadline",
    "queue/read_ahead_kb": "128",
    "queue/rotational": "0",
    "queue/max_sectors_kb": "1280",
    "queue/nr_requests": "1023",
    "queue/write_cache": "write through",
    "queue/discard_max_bytes": "2199023255040",
    "mq/0/cpu_list": "0",
    "mq/1/cpu_list": "1",
    "device/model": "SAMSUNG MZWLL1T6HAJQ",
    "device/firmware_rev": "GPNA9B3Q",
    "device/serial": "S3HDNX0K100001",
    "device/transport": "pcie",
    "device/device/current_link_speed": "8.0 GT/s PCIe",
    "device/device/current_link_width": "8",
}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_nvme_drive_has_its_model_firmware_link_and_queues(host: Host) -> None:
    host.disk("pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1", "259:0", NVME)
    who = identify(host.mounted("259:0"), sys=host.sys, proc=host.proc)
    assert (who.model, who.firmware) == ("SAMSUNG MZWLL1T6HAJQ", "GPNA9B3Q")
    assert (who.bus, who.link) == ("nvme (pcie)", "PCIe 8.0 GT/s x8")
    assert who.capacity_bytes == 2_000_000_000 * 512
    assert (who.scheduler, who.read_ahead_kib, who.file_system) == ("none", 128, "ext4")
    assert who.queue == {
        "nr_requests": "1023",
        "max_request_kib": "1280",
        "write_cache": "write through",
        "discard": "yes",
        "hardware_queues": "2",
    }
    assert "S3HDNX0K100001" not in who.model_dump_json()


def test_the_serial_number_is_there_only_if_asked_for(host: Host) -> None:
    host.disk("pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1", "259:0", NVME)
    path = host.mounted("259:0")
    assert identify(path, sys=host.sys, proc=host.proc).serial is None
    assert (
        identify(path, serial=True, sys=host.sys, proc=host.proc).serial
        == "S3HDNX0K100001"
    )


def test_a_sata_drive_reports_the_speed_of_its_link(host: Host) -> None:
    host.disk(
        "pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda",
        "8:0",
        {
            "device/model": "SAMSUNG MZ7LH960",
            "device/rev": "904Q",
            "device/vendor": "ATA",
            "device/queue_depth": "32",
        },
    )
    port = host.sys / "class/ata_link/link3"
    port.mkdir(parents=True)
    (port / "sata_spd").write_text("6.0 Gbps\n")
    who = identify(host.mounted("8:0"), sys=host.sys, proc=host.proc)
    assert (who.bus, who.link, who.firmware, who.vendor) == (
        "sata",
        "SATA 6.0 Gbps",
        "904Q",
        "ATA",
    )
    assert who.queue["device_depth"] == "32"


def test_a_crypted_volume_over_an_array_of_partitions_leads_to_every_disk(
    host: Host,
) -> None:
    crypt = host.disk(
        "virtual/block/dm-1", "253:1", {"dm/uuid": "CRYPT-LUKS2-0123456789-secret"}
    )
    volume = host.disk("virtual/block/dm-0", "253:0", {"dm/uuid": "LVM-AbCdEf"})
    array = host.disk("virtual/block/md0", "9:0", {"md/level": "raid0"})
    disks = []
    for index, name in enumerate(("sda", "sdb")):
        disks.append(
            host.disk(
                f"pci/host{index}/{name}",
                f"8:{16 * index}",
                {"device/model": f"DISK {name}"},
            )
        )
        host.disk(
            f"pci/host{index}/{name}/{name}1", f"8:{16 * index + 1}", {"partition": "1"}
        )
    for upper, lowers in (
        (crypt, [volume]),
        (volume, [array]),
        (array, [disks[0] / "sda1", disks[1] / "sdb1"]),
    ):
        (upper / "slaves").mkdir()
        for lower in lowers:
            (upper / "slaves" / lower.name).symlink_to(lower)
    assert layers("253:1", host.sys) == [
        "dm-1 (CRYPT)",
        "dm-0 (LVM)",
        "md0 (raid0)",
        "sda1 (partition)",
        "sda (disk)",
        "sdb1 (partition)",
        "sdb (disk)",
    ]
    who = identify(host.mounted("253:1"), sys=host.sys, proc=host.proc)
    assert (who.name, who.disks, who.model) == ("sda", 2, "DISK sda")
    assert "secret" not in who.model_dump_json()


def test_an_overlay_leads_to_the_disk_of_its_upper_folder(host: Host) -> None:
    host.disk("pci/host0/sda", "8:0", {"device/model": "DISK"})
    upper = host.mount.parent / "upper"
    upper.mkdir()
    (host.proc / "self/mountinfo").write_text(
        f"30 20 8:0 / {upper} rw - xfs /dev/sda rw\n"
        f"40 20 0:55 / {host.mount} rw - overlay overlay "
        f"rw,lowerdir=/l,upperdir={upper},workdir=/w\n"
    )
    who = identify(host.mount, sys=host.sys, proc=host.proc)
    assert (who.name, who.file_system) == ("sda", "overlay on xfs")
    assert str(upper) not in who.mount_options


def test_a_mount_point_with_a_space_leads_to_the_disk_of_its_source(host: Host) -> None:
    host.disk("pci/host0/sda", "8:0", {"device/model": "DISK"})
    folder = host.mount / "my data"
    node = host.mount / "sda"
    folder.mkdir()
    try:
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(8, 0))
    except OSError:
        pytest.skip("device nodes need root")
    # Some file systems (btrfs) show an anonymous device.
    line = f"40 20 0:50 / {folder} rw - btrfs {node} rw\n".replace(
        "my data", "my\\040data"
    )
    (host.proc / "self/mountinfo").write_text(line)
    assert identify(folder, sys=host.sys, proc=host.proc).name == "sda"


def test_a_btrfs_of_several_disks_is_on_all_of_them(host: Host) -> None:
    for number, name in enumerate(("sda", "sdb")):
        host.disk(f"pci/host0/{name}", f"8:{16 * number}", {})
        member = host.sys / "fs/btrfs/uuid/devices" / name
        member.parent.mkdir(parents=True, exist_ok=True)
        member.symlink_to(host.sys / "dev/block" / f"8:{16 * number}")
    (host.proc / "self/mountinfo").write_text(
        f"40 20 0:50 / {host.mount} rw - btrfs /dev/sdb rw\n"
    )
    assert block_device(host.mount, sys=host.sys, proc=host.proc).numbers == (
        "8:0",
        "8:16",
    )


def test_a_mount_without_options_of_its_file_system_is_read(host: Host) -> None:
    host.disk("pci/host0/sda", "8:0", {})
    (host.proc / "self/mountinfo").write_text(
        f"40 20 8:0 / {host.mount} rw,noatime - ext4 /dev/sda\n"
    )
    assert (
        identify(host.mount, sys=host.sys, proc=host.proc).mount_options == "rw,noatime"
    )


def test_mount_options_that_name_users_or_hosts_are_left_out(host: Host) -> None:
    host.disk("pci/host0/sda", "8:0", {})
    path = host.mounted(
        "8:0", options="rw,uid=1000,username=jane,addr=10.0.0.1,discard"
    )
    assert (
        identify(path, sys=host.sys, proc=host.proc).mount_options
        == "rw,noatime,discard"
    )


SMART_LOG = {
    "critical_warning": 0,
    "temperature": 311,
    "avail_spare": 100,
    "percent_used": 3,
    "data_units_read": 2000,
    "data_units_written": 1000,
    "power_on_hours": 4321,
    "media_errors": 0,
}


def test_nvme_health_is_read_in_bytes_and_degrees() -> None:
    found = parse_nvme(json.dumps(SMART_LOG))
    assert found["temperature_c"] == 38
    assert (found["data_read_bytes"], found["data_written_bytes"]) == (
        2000 * 512_000,
        1000 * 512_000,
    )
    assert (
        found["percentage_used"],
        found["power_on_hours"],
        found["media_errors"],
    ) == (3, 4321, 0)
    assert parse_nvme("") == parse_nvme("no such device") == parse_nvme("{}") == {}


def test_sata_health_is_read_without_the_serial_number() -> None:
    report = {
        "serial_number": "S45NNA0M1",
        "logical_block_size": 512,
        "smart_status": {"passed": True},
        "temperature": {"current": 31},
        "power_on_time": {"hours": 99},
        "ata_smart_attributes": {
            "table": [
                {"id": 241, "value": 99, "raw": {"value": 1000}},
                {"id": 231, "value": 97, "raw": {"value": 0}},
            ]
        },
    }
    found = parse_smartctl(json.dumps(report))
    assert found == {
        "passed": True,
        "temperature_c": 31,
        "power_on_hours": 99,
        "data_written_bytes": 512_000,
        "percentage_used": 3,
    }


def test_without_a_tool_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert health("sda") == ({}, "nvme-cli is not installed; smartctl is not installed")
