"""One cap that is a container: started when the first command goes in, ended as a whole, and read from the host.

The container's first process waits for its input, whose other end this process holds: however the orchestrator dies,
the kernel closes it, the waiting ends, and with the first process everything in the container. Commands are put beside
it by `docker exec`, which joins the container's cgroups before the command begins.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from harness.isolation.base import Cap, IoLimit, IoStats, Limits, MemoryStats, Needs
from harness.isolation.docker_engine import LABEL, asking
from harness.isolation.docker_groups import ContainerGroups
from harness.isolation.docker_image import Image, find
from harness.isolation.files import read_text
from workloads.errors import HostError, InputError

Lock = Literal["ipc_lock", "ulimit"] | int

_WATCH_SECONDS = 0.1
_END_SECONDS = 20.0
# As in cgroup1: with both limits equal newer kernels do not count how often the first was hit.
_SWAP_SLACK = 2 << 20
# The engine has no word for "no limit" once there is one; the kernel shows this as none.
_NO_LIMIT = 1 << 62
_WAIT = ["/bin/sh", "-c", "read line"]
_FORWARDED = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "TORCH_", "CUDA_VISIBLE", "NCCL_", "MALLOC_", "OUTCORE_",
              "PYTHONHASHSEED", "LANG", "LC_", "TZ")  # fmt: skip
_THROTTLES = (
    ("device_read_iops", "read_iops"),
    ("device_read_bps", "read_bytes_per_s"),
    ("device_write_iops", "write_iops"),
    ("device_write_bps", "write_bytes_per_s"),
)
_NO_DISKS = ("loop", "ram", "zram", "sr", "fd")
_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class DockerCap(Cap):
    """A container that is a cap.

    Args:
        client: docker-py's client.
        name: of the container, saying whose it is (`owner.cap_name`).
        limits: memory and devices.
        image: the image, unless the work brings its own.
        seccomp: a profile as JSON text, None for the engine's own.
        lock: how the work may lock memory, for io_uring's registered buffers: `ipc_lock` (a capability, which only root
            inside has), `ulimit` (no limit, which the engine must be allowed to raise), or bytes.
    """

    named_pipes = True

    def __init__(
        self,
        client: Any,
        name: str,
        limits: Limits,
        image: Image,
        *,
        seccomp: str | None = None,
        lock: Lock = "ipc_lock",
        caveats: Sequence[str] = (),
    ) -> None:
        self.caveats = list(caveats)
        self.name = name
        self.image = image
        self._client, self._limits, self._seccomp, self._lock_by = client, limits, seccomp, lock
        self._needs = Needs()
        self._container: Any = None
        self._input: Any = None
        self._groups: ContainerGroups | None = None
        self._state: dict[str, Any] = {}
        self._asked_to_end = False
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._watcher: threading.Thread | None = None

    @property
    def container_id(self) -> str:
        """The engine's id of the container, empty before it was started."""
        return str(self._container.id) if self._container is not None else ""

    @property
    def first_pid(self) -> int:
        """The host's number of the process that waits in the container."""
        return int(self._container.attrs["State"]["Pid"])

    def bring(self, needs: Needs) -> None:
        """Say what the work needs of the host, before the first command.

        Raises:
            HostError: the image that brings the work is not there.
        """
        self._needs = needs
        if needs.image:
            self.image = find(self._client, needs.image)

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` behind a process here that puts it into the container, which is started if it is not.

        Raises:
            HostError: the engine refuses; a folder that the work needs is not there.
        """
        self._start()
        folder = Path.cwd()
        visible = any(folder.is_relative_to(path) for path in self._visible())
        carried = [self.container_id, str(folder) if visible else "/", *self.image.argv(argv)]
        return [sys.executable, "-m", "harness.isolation.docker_exec", *carried]

    def memory(self) -> MemoryStats:
        """Memory of the container now; the last reading once it is gone, nothing before it was started."""
        return MemoryStats(limit=self._limits.memory_bytes) if self._groups is None else self._groups.memory()

    def io(self) -> IoStats | None:
        """Device I/O charged to the container; the last reading once it is gone."""
        return None if self._groups is None else self._groups.io()

    def pressure(self) -> tuple[int | None, int | None]:
        """Microseconds stalled on (I/O, memory), where the kernel tells it by group (v2)."""
        return (None, None) if self._groups is None else self._groups.pressure()

    def pids(self) -> list[int]:
        """Processes of the work, as the host numbers them; without the one that waits."""
        return [] if self._groups is None else [pid for pid in self._groups.pids() if pid != self.first_pid]

    def set_memory(self, limit_bytes: int | None) -> None:
        """Change the limit of memory, and of memory with swap.

        Raises:
            HostError: the engine refuses.
        """
        self._limits = Limits(limit_bytes, self._limits.io)
        if self._container is not None:
            with asking(f"limit memory to {limit_bytes} bytes"):
                self._container.update(**self._memory_options(_NO_LIMIT))

    def reset_peak(self) -> None:
        """The peak starts again from the present usage, for root."""
        if self._groups is not None:
            self._groups.reset_peak()

    def kill(self) -> None:
        """End everything inside and wait; the readings of the last moment stay."""
        with self._lock:
            self._asked_to_end = self._asked_to_end or not self._ended()
            self._end()

    def ending(self) -> str:
        """Why the container is gone where nobody here ended it."""
        if self._container is None or self._asked_to_end or not self._ended():
            return ""
        code = self._state.get("ExitCode", "unknown")
        return f"its container was ended from outside (exit code {code})"

    def close(self) -> None:
        """End and remove the container; the last readings stay readable.

        Raises:
            HostError: the engine cannot remove it.
        """
        with self._lock:
            if self._container is None:
                return
            self.kill()
            self._over.set()
            if self._input is not None:
                self._input.close()
                self._input = None
            with asking("remove a container"):
                _removed(self._container)
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()

    def _start(self) -> None:
        with self._lock:
            if self._container is not None:
                if self._ended():
                    raise HostError("the run's container has ended already", "start the run again")
                return
            options = self._options()
            with asking("make a container"):
                self._container = self._client.containers.create(self.image.name, _WAIT, **options)
            try:
                with asking("start a container"):
                    self._input = self._container.attach_socket(params={"stdin": 1, "stream": 1})
                    self._container.start()
                    self._container.reload()
                self._groups = ContainerGroups(self.first_pid)
            except BaseException:
                with suppress(HostError):
                    self.close()
                self._container = None
                raise
            self._watcher = threading.Thread(target=self._watch, name=f"oom-watch {self.name[-6:]}", daemon=True)
            self._watcher.start()

    def _options(self) -> dict[str, Any]:
        """What the engine is asked for."""
        from docker.types import Mount, Ulimit

        mounts = [Mount(str(path), str(path), type="bind", read_only=read_only) for path, read_only in self._mounts()]
        security = ["no-new-privileges"]
        if self._seccomp is not None:
            security.append(f"seccomp={self._seccomp}")
        options: dict[str, Any] = {
            "name": self.name,
            "labels": {f"{LABEL}.cap": self.name},
            "entrypoint": [],
            "stdin_open": True,
            "user": f"{os.geteuid()}:{os.getegid()}",
            "group_add": sorted(str(group) for group in os.getgroups()),
            "environment": self._environment(),
            "mounts": mounts,
            "working_dir": "/",
            "read_only": True,
            # Charged to the container, as everything that it writes there is.
            "tmpfs": {"/tmp": "mode=1777,exec"},
            "shm_size": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": security,
            "cap_add": ["IPC_LOCK"] if self._lock_by == "ipc_lock" else [],
            "ulimits": [Ulimit(name="core", soft=0, hard=0)],
            "cpuset_cpus": ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))),
            "log_config": {"Type": "none"},
            **self._memory_options(None),
            **throttles(self._limits.io),
        }
        if self._lock_by != "ipc_lock":
            lock = -1 if self._lock_by == "ulimit" else self._lock_by
            options["ulimits"].append(Ulimit(name="memlock", soft=lock, hard=lock))
        if self._groups_v1():
            options["mem_swappiness"] = 0
        if self._needs.gpu:
            options |= _gpu_options(self.image.layout)
        return options

    def _environment(self) -> dict[str, str]:
        """What of this process's environment moves a number; nothing that names a person or a place."""
        kept = {key: value for key, value in os.environ.items() if key.startswith(_FORWARDED)}
        fixed = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
        if self.image.layout == "host":
            fixed["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
            if "PYTHONPATH" in os.environ:
                fixed["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return kept | fixed

    def _memory_options(self, none: int | None) -> dict[str, int]:
        limit = self._limits.memory_bytes
        if limit is None:
            return {} if none is None else {"mem_limit": none, "memswap_limit": none}
        return {"mem_limit": limit, "memswap_limit": limit + (_SWAP_SLACK if self._groups_v1() else 0)}

    def _groups_v1(self) -> bool:
        from harness.isolation import mounts

        return mounts.v1("memory") is not None

    def _visible(self) -> list[Path]:
        return [path for path, _ in self._mounts()]

    def _mounts(self) -> list[tuple[Path, bool]]:
        """(path, read-only) of what is mounted at the same path inside; what may be written wins.

        Raises:
            InputError: one of them is not there.
        """
        found: dict[Path, bool] = dict.fromkeys(self.image.mounts(), True)
        found |= dict.fromkeys((path.absolute() for path in self._needs.read_only), True)
        # What a link of the dataset points to has to be there as well.
        found |= dict.fromkeys((path.resolve() for path in self._needs.read_only), True)
        found |= dict.fromkeys((path.absolute() for path in self._needs.writable), False)
        for path in found:
            if not path.exists():
                raise InputError(f"the container needs {path}, which is not there", "make it, or name another")
        return sorted(found.items(), key=lambda item: len(item[0].parts))

    def _watch(self) -> None:
        """On OOM end the whole container: the kernel may have ended one process that others wait for."""
        assert self._groups is not None
        while not self._over.wait(_WATCH_SECONDS):
            if self._groups.memory().oom_kills and not self._over.is_set():
                self.kill()
                return

    def _ended(self) -> bool:
        """Whether the container runs no more; the engine's word on how it ended is then kept."""
        if self._container is None or self._state:
            return bool(self._state)
        if read_text(Path(f"/proc/{self.first_pid}/cgroup")).find(self._container.id) >= 0:
            return False
        self._keep_state()
        return True

    def _end(self) -> None:
        import docker.errors

        if self._container is None or self._groups is None or self._state:
            return
        self._groups.memory()
        self._groups.io()
        self._groups.drop_cache()
        try:
            self._container.kill()
        except docker.errors.APIError:
            pass  # it has ended by itself
        self._keep_state()

    def _keep_state(self) -> None:
        """The engine's word on the ending, once it has one: it knows of OOM what the cgroup took with it."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            try:
                with asking("look at a container"):
                    self._container.reload()
            except HostError:
                self._state = {"ExitCode": 137}  # removed by somebody
                break
            state = self._container.attrs["State"]
            if not state["Running"] or time.monotonic() > deadline:
                self._state = dict(state)
                break
            time.sleep(0.01)
        if self._groups is not None:
            self._groups.freeze_last(int(bool(self._state.get("OOMKilled"))))


def throttles(limits: Sequence[IoLimit], sys_: Path = Path("/sys"), dev: Path = Path("/dev")) -> dict[str, Any]:
    """Device limits as the engine takes them: by path, a list for each kind.

    A disk without a limit is named with 0, which means none: v1 counts a disk only once some limit was written for it.

    Raises:
        HostError: no such device.
    """
    wanted: dict[str, IoLimit | None] = {}
    for disk in sorted((sys_ / "block").iterdir()):
        if not disk.name.startswith(_NO_DISKS) and (dev / disk.name).exists():
            wanted[str(dev / disk.name)] = None
    for limit in limits:
        name = (sys_ / "dev" / "block" / limit.device).resolve().name
        if not (dev / name).exists() or ":" in name:
            raise HostError(f"there is no device {limit.device} under /dev to limit", "name a whole disk")
        wanted[str(dev / name)] = limit
    options: dict[str, Any] = {}
    for key, field in _THROTTLES:
        rates = [(path, (getattr(limit, field) or 0) if limit else 0) for path, limit in wanted.items()]
        # One kind of limit is enough to have an unlimited disk counted.
        asked = [(path, rate) for path, rate in rates if rate or key == "device_read_iops"]
        if asked:
            options[key] = [{"Path": path, "Rate": rate} for path, rate in asked]
    return options


def _gpu_options(layout: str) -> dict[str, Any]:
    """The host's driver is in its own /usr; a built image gets it from the engine's NVIDIA runtime."""
    from docker.types import DeviceRequest

    if layout != "host":
        return {"device_requests": [DeviceRequest(count=-1, capabilities=[["gpu", "compute", "utility"]])]}
    nodes = [*_GPU_NODES, *(str(node) for node in sorted(Path("/dev").glob("nvidia[0-9]*")))]
    if not any(Path(node).exists() for node in nodes):
        raise InputError("the run wants a GPU, and there is none under /dev", "use device cpu or emulated:NAME")
    return {"devices": [f"{node}:{node}:rw" for node in nodes if Path(node).exists()]}


def _removed(container: Any) -> None:
    import docker.errors

    try:
        container.remove(force=True, v=True)
    except docker.errors.NotFound:
        pass
