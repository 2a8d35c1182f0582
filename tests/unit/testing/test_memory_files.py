"""Files in memory do what the kernel's do, at random; and what they hold is bounded."""

import errno
import random
from pathlib import Path

import pytest

from tern_store.files import REAL_FILES, Files
from tern_testing.memory_files import MemoryFiles

NAMES = ("a", "b", "c")


def outcome(files: Files, root: Path, chance: random.Random, open_fds: list[int]) -> object:
    """What one call returned, or the number of its error. The same chance makes the same call."""
    path, other = root / chance.choice(NAMES), root / chance.choice(NAMES)
    place, size = chance.randrange(200), chance.randrange(200)
    fd = open_fds[chance.randrange(len(open_fds))] if open_fds else -1
    call = chance.choice(
        ["open", "close", "pwrite", "pwritev", "pread", "preadv", "fallocate", "ftruncate", "rename", "link", "unlink"]
    )
    data = chance.randbytes(chance.randrange(1, 100))
    try:
        if call == "open":
            open_fds.append(files.open(path, create=chance.random() < 0.7))
        elif call in {"rename", "link"}:
            getattr(files, call)(path, other)
        elif call == "unlink":
            files.unlink(path)
        elif not open_fds:
            return None
        elif call == "close":
            open_fds.remove(fd)
            files.close(fd)
        elif call == "pwrite":
            files.pwrite(fd, data, place)
        elif call == "pwritev":
            files.pwritev(fd, [data, memoryview(data)[:3]], place)
        elif call == "pread":
            return files.pread(fd, size, place)
        elif call == "preadv":
            buffers = [bytearray(20), bytearray(30)]
            return files.preadv(fd, buffers, place), buffers
        else:
            getattr(files, call)(fd, size + 1)
    except OSError as error:
        return error.errno
    finally:
        if open_fds and fd in open_fds:
            size = files.size(fd)
    return size, files.listdir(root)


@pytest.mark.parametrize("seed", range(8))
def test_they_do_what_the_kernel_does(seed: int, tmp_path: Path) -> None:
    """The same calls, the same results and errors."""
    memory, there = MemoryFiles(1 << 20), Path("/data")
    memory.makedirs(there)
    chances = random.Random(seed), random.Random(seed)
    fds: tuple[list[int], list[int]] = ([], [])
    for step in range(300):
        found = outcome(memory, there, chances[0], fds[0]), outcome(REAL_FILES, tmp_path, chances[1], fds[1])
        assert found[0] == found[1], (seed, step)
    for fd in fds[1]:
        REAL_FILES.close(fd)


def test_space_that_is_reserved_takes_none_and_reads_as_zeros() -> None:
    """A segment of the log is reserved whole."""
    files = MemoryFiles(100)
    fd = files.open(Path("/a"), create=True)
    files.fallocate(fd, 1 << 30)
    files.pwrite(fd, b"x", 2)
    assert (files.size(fd), files.used_bytes, files.pread(fd, 5, 0)) == (1 << 30, 3, b"\0\0x\0\0")
    assert files.data_extents(fd, 1) == [(1, 3)]


def test_beyond_its_capacity_a_write_fails_and_a_removed_file_gives_its_room_back() -> None:
    """Once it has neither a name nor a descriptor."""
    files = MemoryFiles(100)
    fd = files.open(Path("/a"), create=True)
    files.pwrite(fd, bytes(80), 0)
    other = files.open(Path("/b"), create=True)
    with pytest.raises(OSError) as caught:
        files.pwrite(other, bytes(30), 0)
    assert (caught.value.errno, files.free_bytes(Path("/"))) == (errno.ENOSPC, 20)
    files.unlink(Path("/a"))
    assert files.used_bytes == 80
    files.close(fd)
    assert files.used_bytes == 0
    files.pwrite(other, bytes(30), 0)


def test_a_lock_is_held_by_one_descriptor_until_it_is_closed() -> None:
    """As flock."""
    files = MemoryFiles(100)
    first, second = (files.open(Path("/lock"), create=True) for _ in range(2))
    assert (files.try_lock(first), files.try_lock(second)) == (True, False)
    files.close(first)
    assert files.try_lock(second)


def test_a_folder_is_no_file_and_an_unknown_one_holds_nothing() -> None:
    """As the kernel says."""
    files = MemoryFiles(100)
    files.makedirs(Path("/a/b"))
    assert (files.listdir(Path("/a")), files.listdir(Path("/c"))) == (["b"], [])
    for path, number in ((Path("/a/b"), errno.EISDIR), (Path("/c/d"), errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            files.open(path, create=True)
        assert caught.value.errno == number
