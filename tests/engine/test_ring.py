"""The shared-memory ring: whole, in order, to every reader; corruption and death are noticed; nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.shm.errors import MessageTooLargeError, PeerDiedError, RingClosedError, RingCorruptError
from engine.shm.futex import Futex
from engine.shm.peer import Peer
from engine.shm.reader import SPIN_NS, RingReader
from engine.shm.segment import DATA, LINE, MAX_CAPACITY, PAGE, Segment, asleep_place, create
from engine.shm.writer import RingWriter
from tests.engine.conftest import ROOT
from tests.support.waiting import wait_for

WAIT_S = 60.0


class Ends:
    """A writer and its readers in one process; use as a context manager."""

    def __init__(
        self, readers: int = 1, capacity: int = PAGE, max_message: int = 1 << 20, native: tuple[bool, bool] = (True, True)
    ) -> None:
        """`native`: whether the writer and the readers use the kernels."""
        self.writer = RingWriter(create(readers, capacity), max_message, native[0])
        self.readers = [RingReader(os.dup(self.writer.fd), k, None, max_message, native[1]) for k in range(readers)]
        self.raw = Segment(os.dup(self.writer.fd))

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        for reader in self.readers:
            reader.close()
        self.raw.close()


NATIVE = st.tuples(st.booleans(), st.booleans())
BOTH = pytest.mark.parametrize("native", [(True, True), (False, False)], ids=["native", "python"])
Native = tuple[bool, bool]


def fill(writer: RingWriter) -> None:
    """Send until there is no room."""
    for _ in range(10):
        writer.send(bytes(1000), timeout_s=WAIT_S)


def pattern(size: int, salt: int) -> bytes:
    return random.Random(salt * 100_003 + size).randbytes(size)


@given(st.integers(1, 3), st.lists(st.one_of(st.integers(0, 1008), st.integers(-3, -1)), max_size=60), NATIVE)
@settings(max_examples=250, deadline=None)
def test_each_reader_gets_every_message_in_order_whatever_the_interleaving(
    readers: int, actions: list[int], native: Native
) -> None:
    """Numbers from 0 are sizes to send, negative ones the reader that takes a message."""
    with Ends(readers, native=native) as ends:
        expected: list[deque[bytes]] = [deque() for _ in range(readers)]
        for step, action in enumerate(actions):
            if action >= 0:
                message = pattern(action, step)
                try:
                    ends.writer.send(message, timeout_s=0)
                except TimeoutError:
                    # Refused only when the slowest is far behind, and then nothing went out.
                    assert max(sum(16 + len(m) for m in queue) for queue in expected) > PAGE // 2
                    continue
                for queue in expected:
                    queue.append(message)
            elif -action <= readers:
                queue, reader = expected[-action - 1], ends.readers[-action - 1]
                if queue:
                    assert reader.receive(timeout_s=WAIT_S) == queue.popleft()
                else:
                    with pytest.raises(TimeoutError):
                        reader.receive(timeout_s=0)
        for queue, reader in zip(expected, ends.readers, strict=True):
            while queue:
                assert reader.receive(timeout_s=WAIT_S) == queue.popleft()


@BOTH
@pytest.mark.parametrize("readers", [1, 2, 5])
def test_long_and_short_messages_to_readers_of_different_pace(readers: int, native: Native) -> None:
    rng = random.Random(readers)
    sizes = [rng.choice([0, 1, 15, 16, 17, 1007, 1008, 1009, 4096, 20_000]) for _ in range(300)]
    got: list[list[bytes]] = [[] for _ in range(readers)]

    def read(k: int) -> None:
        pace = random.Random(k)
        for _ in sizes:
            got[k].append(bytes(ends.readers[k].receive(timeout_s=WAIT_S)))
            if k and pace.random() < 0.1:
                time.sleep(0.001 * k)

    with Ends(readers, native=native) as ends:
        threads = [threading.Thread(target=read, args=(k,)) for k in range(readers)]
        for thread in threads:
            thread.start()
        messages = [pattern(size, n) for n, size in enumerate(sizes)]
        for message in messages:
            ends.writer.send(message, timeout_s=WAIT_S)
        for thread in threads:
            thread.join()
    assert all(mine == messages for mine in got)


@BOTH
def test_a_message_that_takes_long_loses_nothing_to_a_timeout(native: Native) -> None:
    with Ends(native=native) as ends:
        message = pattern(20_000, 1)
        sender = threading.Thread(target=ends.writer.send, args=(message,))
        sender.start()
        got: bytes | None = None
        deadline = time.monotonic() + WAIT_S
        while got is None and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                got = bytes(ends.readers[0].receive(timeout_s=0.0005))
        sender.join()
        assert got == message


def test_oversize_is_refused_before_anything_is_written() -> None:
    with Ends(max_message=2000) as ends:
        with pytest.raises(MessageTooLargeError, match="2001 bytes, the limit is 2000"):
            ends.writer.send(bytes(2001))
        ends.writer.send(b"fine")
        assert ends.readers[0].receive(timeout_s=WAIT_S) == b"fine"
    for readers, capacity in ((0, PAGE), (33, PAGE), (1, PAGE - 1), (1, 0), (1, 2 * MAX_CAPACITY)):
        with pytest.raises(ValueError, match="a ring h"):
            create(readers, capacity)


def test_the_header_is_checked() -> None:
    fields: list[tuple[int, bytes, str]] = [
        (0, b"X", "it begins with"),
        (8, b"\x02", "it has version 2, this is 1"),
        (12, b"\x00", "it has 0 readers"),
        (12, b"\xff", "it has 255 readers"),
        (17, b"\x20", "it says that it holds 8192 bytes"),
        (23, b"\xff", "it says that it holds"),
    ]
    for offset, value, message in fields:
        fd = create(1, PAGE)
        os.pwrite(fd, value, offset)
        with pytest.raises(RingCorruptError, match=message):
            RingReader(fd, 0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    with open("/dev/null", "rb") as file, pytest.raises(RingCorruptError, match="0 bytes are no ring"):
        RingReader(file.fileno(), 0)


def test_a_segment_cannot_change_its_size() -> None:
    fd = create(1, PAGE)
    for size in (0, DATA + 2 * PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    os.close(fd)


def test_a_reader_has_one_place_of_its_own() -> None:
    with Ends() as ends:
        for number, message in ((0, f"process {os.getpid()} is reader 0 already"), (1, "no reader 1"), (-1, "no reader -1")):
            with pytest.raises(RingCorruptError, match=message):
                RingReader(os.dup(ends.writer.fd), number)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, DATA + PAGE - 1), st.integers(0, 255)), min_size=1, max_size=6),
    NATIVE,
)
@settings(max_examples=400, deadline=None)
def test_scribbling_gives_an_error_or_other_bytes_but_no_wrong_sizes(
    sizes: list[int], scribbles: list[tuple[int, int]], native: Native
) -> None:
    """What is inside of a record may come out changed; no read leaves the ring, nothing hangs."""
    if sum(size + 64 for size in sizes) > PAGE - 64:
        sizes = sizes[:1]
    with Ends(native=native) as ends:
        for n, size in enumerate(sizes):
            ends.writer.send(pattern(size, n))
        for offset, value in scribbles:
            ends.raw.memory[offset] = value
        try:
            for size in sizes:
                assert len(ends.readers[0].receive(timeout_s=0)) == size
        except (RingCorruptError, RingClosedError, TimeoutError):
            pass


def header(size: int, kind: int, number: int = 0) -> bytes:
    return struct.pack("<IIII", size, kind, number, size ^ (kind << 24) ^ number ^ 0x5F3A91C7)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (LINE, struct.pack("<Q", 8), "the writer is 8 bytes ahead"),
        (LINE, struct.pack("<Q", 1 << 40), "the writer is 1099511627776 bytes ahead"),
        (DATA, header(17, 1), "record 0 has number 0, kind 1, 17 bytes of 32"),
        (DATA, header(1 << 31, 1), "2147483648 bytes of 32"),
        (DATA, header(16, 1, 1), "record 0 has number 1"),
        (DATA, header(16, 1)[:12] + b"\0", "record 0 has number 0, kind 1, 16 bytes of 32"),
        (DATA, header(0, 4), "record 0 skips what is not the end"),
        (DATA, header(16, 3), "record 0 begins a message, its kind is 3"),
        (DATA, header(16, 7), "record 0 begins a message, its kind is 7"),
        (DATA, header(16, 2), "record 0 begins a message, its kind is 2"),
        (DATA, header(8, 2) + struct.pack("<Q", 1 << 21), "record 0 announces 2097152 bytes"),
    ],
    ids=str,
)
@BOTH
def test_corrupt_records_are_named(offset: int, value: bytes, message: str, native: Native) -> None:
    with Ends(native=native) as ends:
        ends.writer.send(bytes(16))
        ends.raw.memory[offset : offset + len(value)] = value
        with pytest.raises(RingCorruptError, match=message):
            ends.readers[0].receive(timeout_s=WAIT_S)


def test_pieces_of_a_message_must_follow_each_other() -> None:
    with Ends() as ends:
        ends.writer.send(bytes(1008))
        ends.writer.send(bytes(1008))
        ends.raw.memory[DATA : DATA + 24] = header(8, 2) + struct.pack("<Q", 1500)
        ends.raw.memory[DATA + 32 : DATA + 48] = header(1600, 3, 1)
        with pytest.raises(RingCorruptError, match="record 1 does not go on with its message"):
            ends.readers[0].receive(timeout_s=WAIT_S)


@pytest.mark.parametrize("position", [8, 1 << 30])
def test_a_reader_in_a_wrong_place_is_noticed(position: int) -> None:
    with Ends() as ends:
        ends.raw.words[2 * LINE // 8] = position
        with pytest.raises(RingCorruptError, match=f"reader 0 is at byte {position}"):
            fill(ends.writer)


@BOTH
def test_closing_is_told_after_the_last_message(native: Native) -> None:
    with Ends(native=native) as ends:
        ends.writer.send(b"last")
        ends.writer.close()
        with pytest.raises(RingClosedError):
            ends.writer.send(b"more")
        assert ends.readers[0].receive() == b"last"
        with pytest.raises(RingClosedError, match="the writer has closed"):
            ends.readers[0].receive()
    with Ends(readers=2, native=native) as ends:
        ends.readers[1].close()
        with pytest.raises(RingClosedError, match="reader 1 has closed"):
            fill(ends.writer)


@BOTH
def test_a_wait_can_be_interrupted_from_another_thread(native: Native) -> None:
    with Ends(native=native) as ends:
        waiting = threading.Event()
        reasons: list[str] = []

        def wait() -> None:
            waiting.set()
            with pytest.raises(RingClosedError) as caught:
                ends.readers[0].receive()
            reasons.append(str(caught.value))

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait()
        ends.readers[0].interrupt("somebody died")
        thread.join(WAIT_S)
        assert reasons == ["somebody died"]
        ends.writer.send(b"but this was there")
        assert ends.readers[0].receive() == b"but this was there"


def test_the_barrier_of_other_machines() -> None:
    futex = Futex()
    futex.ordered = False
    futex.fence()
    futex.order()
    with Ends(native=(False, False)) as ends:
        for end in (ends.writer, ends.readers[0]):
            end._futex, end._ordered = futex, False
        for size in (1000, 1008, 0, 3000):
            ends.writer.send(bytes(size))
            assert ends.readers[0].receive() == bytes(size)


def test_the_kernels_are_used_where_they_are_there() -> None:
    with Ends() as ends:
        assert ends.writer._send_native is not None
        assert ends.readers[0]._next is not None


@BOTH
def test_a_sleeper_is_woken_by_the_next_message_whoever_waits_and_writes(native: Native) -> None:
    """Each message is sent once the reader is seen asleep; no wake-up may be lost."""
    count = 200
    with Ends(native=native) as ends:
        got: list[bytes] = []
        asleep = asleep_place(0)

        def read() -> None:
            got.extend(bytes(ends.readers[0].receive(timeout_s=WAIT_S)) for _ in range(count))

        thread = threading.Thread(target=read)
        thread.start()
        for n in range(count):
            while thread.is_alive() and not ends.raw.halves[asleep]:
                time.sleep(0.0001)
            ends.writer.send(n.to_bytes(4, "little"))
        thread.join(WAIT_S)
        assert got == [n.to_bytes(4, "little") for n in range(count)]


@contextlib.contextmanager
def sent_to_a_sleeper(ends: Ends, message: bytes) -> Iterator[None]:
    """Another thread sends the message when the reader has been asleep for some time."""

    def send() -> None:
        wait_for(lambda: ends.raw.halves[asleep_place(0)], "a reader that sleeps", WAIT_S, every_s=0.001)
        time.sleep(0.02)
        ends.writer.send(message)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join(WAIT_S)


def test_a_reader_spins_for_longer_only_while_waits_are_short() -> None:
    with Ends() as ends:
        reader = ends.readers[0]
        state = reader._state
        short, longer = SPIN_NS
        assert state.spin_ns == short
        for before in (short, longer):
            state.spin_ns = before
            with sent_to_a_sleeper(ends, b"late"):
                assert reader.receive(timeout_s=WAIT_S) == b"late"
            assert state.spin_ns == short
        # What ends before `long_ns` have passed since the wait began is a short wait, whether the reader looked before or not.
        state.long_ns = 10**12
        for restraint in (0, 1):
            state.restraint, state.spin_ns = restraint, short
            with sent_to_a_sleeper(ends, b"early"):
                assert reader.receive(timeout_s=WAIT_S) == b"early"
            assert state.spin_ns == 10**12


def test_a_reader_that_is_held_back_does_not_look() -> None:
    with Ends() as ends:
        state = ends.readers[0]._state
        state.restraint, state.spin_ns = 2, 10**12
        for left in (1, 0):
            with pytest.raises(TimeoutError):
                ends.readers[0].receive(timeout_s=0)
            assert state.restraint == left


def test_a_reader_that_shares_its_core_is_held_back_for_longer_each_time() -> None:
    core = min(os.sched_getaffinity(0))
    burner = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"])
    everywhere = os.sched_getaffinity(0)
    try:
        with Ends() as ends:
            os.sched_setaffinity(threading.get_native_id(), [core])
            reader, state = ends.readers[0], ends.readers[0]._state
            held = []
            for _ in range(5):
                state.restraint = 0
                # It looks until it is away from its core for long: nothing else ends this before WAIT_S.
                state.spin_ns = int(WAIT_S * 1e9)
                with pytest.raises(TimeoutError):
                    reader.receive(timeout_s=0)
                held.append(state.restraint)
            assert held == [16, 64, 256, 1024, 1040]
            assert state.caution == 1024
    finally:
        os.sched_setaffinity(threading.get_native_id(), everywhere)
        burner.kill()
        burner.wait()


def test_a_reader_that_has_its_core_is_held_back_less() -> None:
    with Ends() as ends:
        reader, state = ends.readers[0], ends.readers[0]._state
        deadline = time.monotonic() + WAIT_S
        less = False
        while not less and time.monotonic() < deadline:
            state.caution, state.restraint, state.spin_ns = 5, 0, 100_000
            with pytest.raises(TimeoutError):
                reader.receive(timeout_s=0)
            less = (state.caution, state.restraint) == (4, 0)
        assert less


def test_a_closed_end_is_not_used_any_more() -> None:
    with Ends() as ends:
        ends.writer.send(b"left unread")
        ends.readers[0].close()
        ends.writer.close()
        with pytest.raises(RingClosedError):
            ends.readers[0].receive(timeout_s=0)
        with pytest.raises(RingClosedError):
            ends.writer.send(b"more")


CHILD = r"""
import os, sys, time
from engine.shm.peer import Peer
from engine.shm.reader import RingReader
from engine.shm.writer import RingWriter
fd, kind = int(sys.argv[1]), sys.argv[2]
if kind == "sums":
    import zlib
    reader = RingReader(fd, int(sys.argv[3]), Peer(os.getppid(), "parent"))
    total = 0
    for _ in range(int(sys.argv[4])):
        total = zlib.crc32(reader.receive(), total)
    print(total)
elif kind == "reader":
    reader = RingReader(fd, int(sys.argv[3]), Peer(os.getppid(), "parent"))
    # One write each: both readers share a pipe.
    os.write(1, b"there\n")
    try:
        while True:
            reader.receive()
    except Exception as error:
        os.write(1, f"{type(error).__name__}\n".encode())
elif kind == "stuck":
    reader = RingReader(fd, 0)
    print("there", flush=True)
    time.sleep(600)
else:
    writer = RingWriter(fd)
    writer.send(b"one")
    writer.send(bytes(5000))
    print("there", flush=True)
    writer.send(bytes(100_000))
"""
Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def child() -> Iterator[Child]:
    with ExitStack() as stack:

        def start(fd: int, *args: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", CHILD, str(fd), *map(str, args)]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=[fd], stdout=subprocess.PIPE, text=True)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_other_processes_read_everything(child: Child) -> None:
    import zlib  # noqa: PLC0415 - the same as in the child

    writer = RingWriter(create(2, 64 * PAGE))
    readers = [child(writer.fd, "sums", k, 4000) for k in range(2)]
    rng, total = random.Random(1), 0
    for n in range(4000):
        message = pattern(rng.choice([10, 200, 1500, 40_000 if n % 50 == 0 else 3]), n)
        total = zlib.crc32(message, total)
        writer.send(message, timeout_s=WAIT_S)
    assert [said(reader) for reader in readers] == [str(total)] * 2
    writer.close()


def test_a_writer_notices_that_a_reader_was_killed(child: Child) -> None:
    writer = RingWriter(create(1, PAGE))
    process = child(writer.fd, "stuck")
    assert said(process) == "there"
    peer = Peer(process.pid, "worker 0")
    writer.watch([peer])
    writer.send(bytes(1000))
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PeerDiedError, match=rf"worker 0 \(pid {process.pid}\) has ended"):
        fill(writer)
    peer.close()
    writer.close()


def test_a_reader_notices_that_the_writer_was_killed_and_keeps_what_was_complete(child: Child) -> None:
    fd = create(1, 4 * PAGE)
    process = child(fd, "writer")
    peer = Peer(process.pid, "the core")
    assert said(process) == "there"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    reader = RingReader(fd, 0, peer)
    assert reader.receive(WAIT_S) == b"one"
    assert reader.receive(WAIT_S) == bytes(5000)
    with pytest.raises(PeerDiedError, match="the core"):
        reader.receive(WAIT_S)
    peer.close()
    reader.close()


PARENT = """
import os, subprocess, sys, time
from engine.shm.writer import RingWriter
from engine.shm.segment import create
writer = RingWriter(create(2, 1 << 16))
readers = [
    subprocess.Popen([sys.executable, "-c", sys.argv[1], str(writer.fd), "reader", str(k)], pass_fds=[writer.fd])
    for k in range(2)
]
writer.send(b"hello")
time.sleep(600)
"""


def test_all_readers_leave_when_the_writer_is_killed_and_nothing_is_left() -> None:
    """There is no name in the file system at any time, so none can be left over."""
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            assert [said(parent), said(parent)] == ["there", "there"]
            assert "/memfd:fastfront-ring-" in Path(f"/proc/{parent.pid}/maps").read_text()
            assert not {name for name in set(os.listdir("/dev/shm")) - before if "fastfront" in name}
        finally:
            parent.kill()
        # Both end by themselves: their output ends.
        lines = parent.stdout.read().splitlines()
    assert lines == ["PeerDiedError"] * 2
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "fastfront" in name}
