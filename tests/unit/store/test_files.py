"""The kernel behind the protocol: the few promises of RealFiles that are its own."""

import os
from pathlib import Path

import pytest

from tern_store import RealFiles
from tern_store.files import IOV_MAX


def test_more_parts_than_the_kernel_takes_at_once_are_all_written(tmp_path: Path) -> None:
    """2.5 times IOV_MAX parts, in order, behind an offset."""
    files = RealFiles()
    fd = files.open(tmp_path / "f", create=True)
    parts = [bytes([number % 251]) * (number % 5) for number in range(IOV_MAX * 5 // 2)]
    files.pwritev(fd, parts, 7)
    assert files.pread(fd, 1 << 20, 0) == bytes(7) + b"".join(parts)
    files.close(fd)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes 10 bytes at a time."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:10], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwrite(fd, b"".join(parts)[:13], at))
    files = RealFiles()
    fd = files.open(tmp_path / "f", create=True)
    files.pwrite(fd, bytes(range(200)), 0)
    files.pwritev(fd, [bytes(range(100)), bytes(range(100, 200))], 200)
    assert files.pread(fd, 1000, 0) == bytes(range(200)) * 2
    files.close(fd)


def test_files_and_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    """0700 and 0600, whatever the depth."""
    files = RealFiles()
    files.makedirs(tmp_path / "a" / "b")
    files.close(files.open(tmp_path / "a" / "b" / "f", create=True))
    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/f")]
    assert modes == [0o700, 0o700, 0o600]
    assert files.listdir(tmp_path / "nowhere") == []
    assert files.free_bytes(tmp_path) > 0


def test_data_is_found_in_a_file_of_holes(tmp_path: Path) -> None:
    """Every written byte lies in a reported extent, also behind a start in the middle of one."""
    files = RealFiles()
    fd = files.open(tmp_path / "f", create=True)
    files.fallocate(fd, 1 << 20)
    for at in (0, 300_000, 900_000):
        files.pwrite(fd, b"data", at)
    extents = files.data_extents(fd, 2)
    assert all(any(begin <= at < end for begin, end in extents) for at in (3, 300_000, 900_003))
    assert files.data_extents(fd, 1 << 20) == []
    assert files.size(fd) == 1 << 20
    files.close(fd)
