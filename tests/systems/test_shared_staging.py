"""A shared staging buffer: idle portions are lent and return, rows are found, the death
of a process hangs no other."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from systems.engine.io.reader import RowReader
from systems.gnndrive.buffers import BufferClosed, SharedStaging
from systems.gnndrive.extractor import SharedStagedExtractor
from tests.systems.test_gnndrive import LateAccelerator
from workloads.accelerator import CpuAccelerator, Event

pytestmark = pytest.mark.timeout(60)

ROW = 512


class HeldEvent(Event):
    """Copy that moves no byte before it is waited for: a read without waiting gets old
    bytes."""

    def __init__(self, move: Callable[[], object]) -> None:
        super().__init__(0.0)
        self._move: Callable[[], object] | None = move

    def wait(self) -> None:
        if self._move is not None:
            self._move()
        self._move = None

    def done(self) -> bool:
        return self._move is None


class HeldAccelerator(LateAccelerator):
    """Device whose copies hold their segments until they are waited for."""

    def copy(self, dst, src, dst_rows=None, *, batch=-1):  # type: ignore[no-untyped-def, override]
        return HeldEvent(lambda: CpuAccelerator.copy(self, dst, src, dst_rows))


def shared(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(
        mmap.mmap(-1, nbytes), dtype=np.uint8
    )  # anonymous and shared: a child has the same pages


def pool(
    parties: int, portion: int, rows: int = 4, *, borrow: bool = True
) -> list[SharedStaging]:
    """Make one buffer and return each party's access to it."""
    staging = torch.from_numpy(shared(parties * portion * rows * ROW))
    memory = shared(SharedStaging.plan_bytes(parties, portion, rows))
    return [
        SharedStaging(
            party,
            parties,
            portion,
            rows,
            ROW,
            rows=staging,
            memory=memory,
            create=party == 0,
            borrow=borrow,
        )
        for party in range(parties)
    ]


def taken(staging: SharedStaging, count: int, **how: bool) -> list[int]:
    found = [staging.acquire(wait=False, **how) for _ in range(count)]
    return [segment for segment in found if segment is not None]


def child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_an_idle_portion_is_lent_unless_borrowing_is_off() -> None:
    first, _ = pool(2, 3)
    assert sorted(taken(first, 9)) == [0, 1, 2, 3, 4, 5]
    assert first.borrowed == 3
    first, _ = pool(2, 3)
    assert len(taken(first, 9, borrow=False)) == 3
    first, _ = pool(2, 3, borrow=False)
    assert len(taken(first, 9)) == 3
    assert first.borrowed == 0


def test_a_party_that_waits_for_its_own_portion_comes_before_borrowers() -> None:
    first, second = pool(2, 2)
    held = taken(first, 4)
    got: list[int | None] = []
    waiter = threading.Thread(target=lambda: got.append(second.acquire(wait=True)))
    waiter.start()
    time.sleep(0.1)
    assert not got, "all are held"
    first.release(held.pop())
    waiter.join(5)
    assert len(got) == 1
    first.release(held.pop())
    assert len(taken(second, 2)) == 1, (
        "its second segment was lent and must come back first"
    )
    assert not taken(first, 1)


def test_rows_are_found_until_their_segment_is_taken_again() -> None:
    first, second = pool(2, 1, rows=4)
    (mine,) = taken(first, 1)
    nodes = np.array([10, 11, 12])
    first.rows.view(-1, ROW)[mine * 4 : mine * 4 + 3] = torch.tensor(
        [[1], [2], [3]], dtype=torch.uint8
    )
    assert len(second.present(nodes)) == 0, "not published yet"
    first.publish(mine, nodes)
    first.release(mine)
    (other,) = taken(
        second, 1
    )  # the segment free for longest, so the rows are still there
    wanted = np.array([99, 12, 10])
    assert second.present(wanted).tolist() == [1, 2]
    assert second.fetch(other, wanted).tolist() == [1, 2]
    assert second.rows.view(-1, ROW)[other * 4 : other * 4 + 2, 7].tolist() == [3, 1]
    assert second.found == 2
    assert taken(second, 1) == [mine]
    assert len(second.present(nodes)) == 0


def test_processes_copy_the_rows_they_asked_for_and_none_starves() -> None:
    """Three processes with two threads each fill, publish, fetch and hold segments in
    turn; every row is its node's."""
    stagings = pool(3, 2, rows=4)

    def load(staging: SharedStaging, seed: int) -> None:
        random = np.random.default_rng(seed)
        table = staging.rows.view(-1, ROW).view(torch.int64).numpy()
        for _ in range(200):
            nodes = random.choice(40, size=4, replace=False)
            held = [staging.acquire(wait=True)]
            while (
                random.random() < 0.5
                and (more := staging.acquire(wait=False)) is not None
            ):
                held.append(more)
            for segment in held:
                assert segment is not None
                mine = table[4 * segment : 4 * segment + 4]
                found = staging.fetch(segment, nodes)
                assert (mine[: len(found)] == nodes[found, None]).all()
                mine[:] = nodes[:, None]
                staging.publish(segment, nodes)
            for segment in held:
                assert segment is not None
                staging.release(segment)

    def work(staging: SharedStaging, party: int) -> None:
        failed: list[BaseException] = []

        def guarded(seed: int) -> None:
            try:
                load(staging, seed)
            except BaseException as error:
                failed.append(error)

        threads = [
            threading.Thread(target=guarded, args=(10 * party + number,))
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed

    children = [
        child(lambda party=party: work(stagings[party], party)) for party in range(3)
    ]  # type: ignore[misc]
    assert [status(pid) for pid in children] == [0, 0, 0]
    assert len(taken(stagings[0], 9)) == 6, "everything came back"
    assert sum(staging.found for staging in stagings) > 0
    assert sum(staging.borrowed for staging in stagings) > 0


def test_a_process_that_dies_with_segments_leaves_the_others_able_to_end() -> None:
    first, second = pool(2, 1)

    def hold() -> None:
        taken(second, 2)
        time.sleep(30)

    victim = child(hold)
    time.sleep(0.3)
    assert not taken(first, 1), "the child holds both"
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            while True:
                first.acquire(wait=True)
        except BufferClosed as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.1)
    first.close()
    waiter.join(5)
    assert len(caught) == 1
    with pytest.raises(BufferClosed):
        second.acquire(wait=False)


def test_wrong_memory_is_refused() -> None:
    memory = shared(SharedStaging.plan_bytes(2, 2, 4))
    rows = torch.from_numpy(shared(16 * ROW))
    SharedStaging(0, 2, 2, 4, ROW, rows=rows, memory=memory, create=True)
    with pytest.raises(ValueError, match="another number of segments"):
        SharedStaging(0, 2, 1, 4, ROW, rows=rows, memory=memory, create=False)
    with pytest.raises(ValueError, match="too small"):
        SharedStaging(0, 2, 20, 4, ROW, rows=rows, memory=memory, create=True)


@pytest.mark.parametrize("share_rows", [True, False])
def test_extractors_of_two_processes_load_the_same_rows_with_late_copies(
    tmp_path: Path, share_rows: bool
) -> None:
    """Copies end late, so segments run out and are borrowed; the second process finds
    rows of the first in them."""
    table = np.random.default_rng(0).integers(0, 255, size=(600, ROW), dtype=np.uint8)
    path = tmp_path / "table"
    path.write_bytes(table.tobytes())
    nodes = np.random.default_rng(1).permutation(600)
    stagings = pool(2, 16, rows=4)
    read = []
    for party, staging in enumerate(stagings):
        reader = RowReader(path, data_offset=0, num_rows=600, row_bytes=ROW, depth=16)
        device = torch.zeros(600, ROW, dtype=torch.uint8)
        extractor = SharedStagedExtractor(
            reader, device, staging, HeldAccelerator(), share_rows=share_rows
        )
        stats, _ = extractor.load(nodes, np.arange(600), 0)
        assert np.array_equal(device.numpy(), table[nodes])
        assert stats.unique_rows == 600 - staging.found
        read.append(stats.unique_rows)
        assert staging.borrowed > 0
        assert len(stagings[1 - party].present(nodes)) > 0
        extractor.close()
    assert read[0] == 600
    assert (read[1] < 600) == share_rows
    assert len(taken(stagings[0], 99)) == 32, "a segment was not given back"
