"""OpenFiles: bounded, the longest unused closed first, and never in the way of an open."""

import errno
from functools import partial
from pathlib import Path

import pytest

from tern_store.open_files import OpenFiles
from tests.support.files.faulty_files import FaultyFiles


def some(files: FaultyFiles, count: int) -> list[Path]:
    """Files that exist and are not open."""
    files.makedirs(Path("/data"))
    paths = [Path(f"/data/{number}") for number in range(count)]
    for path in paths:
        files.close(files.open(path, create=True))
    return paths


def test_the_longest_unused_is_closed_for_the_next() -> None:
    """Never more than the cap."""
    files = FaultyFiles()
    a, b, c = some(files, 3)
    cache: OpenFiles[Path] = OpenFiles(files, 2)
    for path in (a, b):
        cache.open(path, partial(files.open, path))
    assert cache.get(a) is not None
    cache.open(c, partial(files.open, c))
    assert [cache.get(path) is not None for path in (a, b, c)] == [True, False, True]
    assert files.open_count() == len(cache) == 2
    cache.close(b)
    cache.close(a)
    cache.close_all()
    assert files.open_count() == len(cache) == 0


def test_a_process_without_descriptors_gets_half_of_them_back() -> None:
    """The open succeeds, and the next few opens of others do."""
    files = FaultyFiles()
    paths = some(files, 40)
    cache: OpenFiles[Path] = OpenFiles(files, 64)
    files.open_files_max = 10
    for number, path in enumerate(paths):
        cache.open(path, partial(files.open, path))
        assert min(number + 1, 5) <= len(cache) <= 10
    others = [files.open(paths[-1]) for _ in range(10 - files.open_count())]
    cache.open(paths[0], partial(files.open, paths[0]))
    more = [files.open(paths[-1]) for _ in range(10 - files.open_count())]
    assert (len(cache) + len(others) + len(more), bool(more)) == (10, True)


@pytest.mark.parametrize("refusal", [errno.EMFILE, errno.ENFILE])
def test_nothing_to_close_is_the_kernels_refusal(refusal: int) -> None:
    """And so is any other refusal at once."""
    files = FaultyFiles()
    (path, other) = some(files, 2)
    cache: OpenFiles[Path] = OpenFiles(files, 4)
    cache.open(other, partial(files.open, other))
    calls = []

    def opening(error: int) -> int:
        calls.append(error)
        raise OSError(error, "refused")

    with pytest.raises(OSError, match="refused"):
        cache.open(path, partial(opening, errno.ENOENT))
    assert (len(calls), len(cache)) == (1, 1)
    with pytest.raises(OSError, match="refused"):
        cache.open(path, partial(opening, refusal))
    assert (len(calls), len(cache), files.open_count()) == (3, 0, 0)
