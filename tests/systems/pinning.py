"""An emulated device that pins host memory as the CUDA device does, by a stub of the
CUDA runtime that counts pages."""

from __future__ import annotations

from torch import Tensor

from workloads.accelerator import aligned_host_tensor
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.pinned import PinnedMemory
from workloads.accelerators.profile import load_profile
from workloads.direct_files import PAGE, padded


class StubDriver:
    """Registration of host pages. It refuses what the runtime refuses: pages that are
    registered already, and addresses that are not."""

    ALREADY = 712
    UNKNOWN = 713

    def __init__(self) -> None:
        self.pages: dict[int, range] = {}
        self.most_bytes = 0

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        """Register the pages, none of which may be registered."""
        assert address % PAGE == 0
        assert nbytes % PAGE == 0
        assert flags == 3
        wanted = range(address // PAGE, (address + nbytes) // PAGE)
        if any(
            wanted.start < held.stop and held.start < wanted.stop
            for held in self.pages.values()
        ):
            return self.ALREADY
        self.pages[address] = wanted
        self.most_bytes = max(self.most_bytes, self.nbytes)
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        """Unregister what was registered at this address."""
        return self.UNKNOWN if self.pages.pop(address, None) is None else 0

    @property
    def nbytes(self) -> int:
        """Bytes registered now."""
        return PAGE * sum(len(pages) for pages in self.pages.values())


class PinningDevice(EmulatedAccelerator):
    """Emulated device whose host buffers are pinned until they are given back."""

    def __init__(self, memory_bytes: int, profile: str = "instant") -> None:
        super().__init__(load_profile(profile), memory_bytes)
        self.driver = StubDriver()
        self._pinned = PinnedMemory(self.driver, self.synchronize)

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate whole pages and pin them."""
        buffer = aligned_host_tensor(padded(nbytes))[:nbytes]
        self.pin(buffer)
        return buffer

    def pin(self, buffer: Tensor) -> None:
        """Pin the buffer."""
        self._pinned.add(buffer)

    def free_host(self, buffer: Tensor) -> None:
        """Unpin the buffer."""
        self._pinned.remove(buffer)

    def close(self) -> None:
        """Unpin everything and close the pool."""
        self._pinned.close()
        super().close()


class AheadDevice(PinningDevice):
    """Emulated device that gathers split tables beside training, as the CUDA device
    does."""

    gathers_ahead = True
