"""The files of a name server: whole or not at all, never taken for empty when they are damaged, one process at a time."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import orjson
import pytest

from tern_namesrv.core import OperatorState
from tern_namesrv.operator_files import CONFIGURATION, PERMISSIONS, FilesUnusable, OperatorFiles
from tern_namesrv.operator_store import OperatorStore, open_store
from tern_wire.errors import ConfigurationNotSaved, InvalidField

TOLD = OperatorState().put("ORDER_TOPIC_CONFIG", "orders", "broker-a:8").permit("broker-b", writable=False)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def written(directory: Path, state: OperatorState = TOLD) -> None:
    """*state* in the files of *directory*, which nobody holds."""
    files = OperatorFiles(directory)
    files.write(None, state)
    files.close()


def read(directory: Path) -> OperatorState:
    """What the files say."""
    files = OperatorFiles(directory)
    try:
        return files.read()
    finally:
        files.close()


def test_what_was_told_is_there_again_and_readable_by_nobody_else(tmp_path: Path) -> None:
    """The configuration in RocketMQ's own form."""
    written(tmp_path / "made" / "anew")
    assert read(tmp_path / "made" / "anew") == TOLD
    document = orjson.loads((tmp_path / "made" / "anew" / CONFIGURATION).read_bytes())
    assert document["configTable"] == {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:8"}}
    assert (tmp_path / "made" / "anew" / PERMISSIONS).stat().st_mode & 0o777 == 0o600


def test_an_empty_directory_and_a_draft_that_was_never_finished_are_nothing(tmp_path: Path) -> None:
    """A power cut while the first file was written: nobody was told that it was kept."""
    (tmp_path / f"{CONFIGURATION}.tmp").write_bytes(b'{"configTable":{"A"')
    assert read(tmp_path) == OperatorState()
    written(tmp_path)
    (tmp_path / f"{CONFIGURATION}.tmp").write_bytes(b"rubbish")
    assert read(tmp_path) == TOLD


@pytest.mark.parametrize("name", [CONFIGURATION, PERMISSIONS])
def test_no_damaged_byte_is_overlooked(tmp_path: Path, name: str) -> None:
    """Every byte of each file, once another one, and the file cut off there: refused with its name, or it says the same."""
    written(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for position in range(len(whole)):
        for damaged in (
            whole[:position] + bytes((whole[position] ^ 0x04,)) + whole[position + 1 :],
            whole[:position],
        ):
            (tmp_path / name).write_bytes(damaged)
            try:
                assert read(tmp_path) == TOLD, damaged  # the newline behind it, for instance
            except FilesUnusable as refused:
                assert f"{tmp_path / name} is damaged" in str(refused)
                assert "another name server" in str(refused)
    (tmp_path / name).write_bytes(whole)
    assert read(tmp_path) == TOLD


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"{}",
        b'{"configTable":[]}',
        b'{"configTable":{"NS":"x"}}',
        b'{"configTable":{"NS":{"k":1}}}',
        b'{"configTable":{"N S":{"k":"v"}}}',
        b'{"configTable":{},"more":1}',
        b'{"configTable":{},"crc32":1}',
        b'{"configTable":{"NS":{"k":"\\ud800"}}}',
        b"\xff",
        b"",
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, document: bytes) -> None:
    """Whatever it holds, it is not what somebody has told this name server."""
    (tmp_path / CONFIGURATION).write_bytes(document)
    with pytest.raises(FilesUnusable, match="is damaged"):
        read(tmp_path)


def test_a_file_without_a_checksum_is_taken_as_it_is(tmp_path: Path) -> None:
    """RocketMQ's own, or one that an operator has edited."""
    (tmp_path / CONFIGURATION).write_bytes(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"a:4"},"EMPTY":{}}}')
    assert read(tmp_path).configuration.orders == {"orders": "a:4"}
    assert read(tmp_path).configuration.entries == 1


def test_two_name_servers_never_share_a_directory(tmp_path: Path) -> None:
    """The second is told so, and may have it when the first has gone."""
    first = OperatorFiles(tmp_path)
    with pytest.raises(FilesUnusable, match="belongs to another name server"):
        OperatorFiles(tmp_path)
    first.close()
    OperatorFiles(tmp_path).close()
    (tmp_path / "file").write_text("x")
    with pytest.raises(FilesUnusable, match="cannot be used"):
        OperatorFiles(tmp_path / "file")


class FailingFiles(OperatorFiles):
    """Real files on a disk that is full for the next `full_for` writes, or fails once it has written (`fails_late`); `writes` counts
    what was tried. A write begins when `may_begin` is set."""

    fails_late = False
    full_for = writes = 0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may_begin = threading.Event()
        self.may_begin.set()

    def write(self, before: OperatorState | None, after: OperatorState) -> None:
        """As the kernel would fail."""
        self.writes += 1
        assert self.may_begin.wait(10)
        if self.full_for:
            self.full_for -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(before, after)
        if self.fails_late:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def put(store: OperatorStore, key: str, value: str = "v") -> "asyncio.Future[OperatorState]":
    """A change that is under way."""
    return asyncio.ensure_future(store.change(lambda state: state.put("NS", key, value)))


async def test_changes_that_come_together_are_written_together(tmp_path: Path) -> None:
    """Each is decided on top of those before it; all are on disk when they are answered."""
    files = FailingFiles(tmp_path)
    store = OperatorStore(files)
    await asyncio.gather(*(put(store, f"k{number}") for number in range(100)))
    assert store.state.configuration.entries == 100
    assert files.writes <= 3
    assert files.read() == store.state
    store.close()


async def test_a_change_that_cannot_be_saved_is_not_in_effect(tmp_path: Path) -> None:
    """Nor are those that were decided on top of it; the next one that fits is written with everything that was in effect."""
    files = FailingFiles(tmp_path)
    store = OperatorStore(files)
    seen: list[OperatorState] = []
    store.on_change = seen.append
    await put(store, "kept")
    files.full_for = 1
    for refused in await asyncio.gather(*(put(store, f"k{n}") for n in range(3)), return_exceptions=True):
        assert isinstance(refused, ConfigurationNotSaved)
        assert refused.retryable
        assert "No space left" in refused.detail
    assert list(store.state.configuration.listed("NS")) == ["kept"]
    await put(store, "later")
    assert [list(state.configuration.listed("NS")) for state in seen] == [["kept"], ["kept", "later"]]
    assert files.read() == store.state
    store.close()


async def test_what_is_decided_while_a_write_fails_is_refused_with_it(tmp_path: Path) -> None:
    """It stands on top of what nobody was told that it was kept."""
    files = FailingFiles(tmp_path)
    store = OperatorStore(files)
    files.full_for = 1
    files.may_begin.clear()
    first = put(store, "first")
    async with asyncio.timeout(30):
        while not files.writes:
            await asyncio.sleep(0.001)
    second = put(store, "second")
    await asyncio.sleep(0)
    files.may_begin.set()
    for refused in await asyncio.gather(first, second, return_exceptions=True):
        assert isinstance(refused, ConfigurationNotSaved)
    assert store.state == OperatorState()
    await put(store, "third")
    assert list(files.read().configuration.listed("NS")) == ["third"]
    store.close()


async def test_a_write_that_failed_half_way_is_undone_by_the_next_whatever_it_changes(tmp_path: Path) -> None:
    """The file may hold what was refused; a restart must not bring that into effect."""
    files = FailingFiles(tmp_path)
    store = OperatorStore(files)
    files.fails_late = True
    with pytest.raises(ConfigurationNotSaved):
        await put(store, "refused")
    files.fails_late = False
    await store.change(lambda state: state.permit("broker-a", writable=False))
    assert files.read() == store.state == OperatorState(wiped=frozenset({"broker-a"}))
    store.close()


async def test_a_change_that_is_refused_costs_no_write_and_holds_up_no_other(tmp_path: Path) -> None:
    """It is refused before anything is done."""
    files = FailingFiles(tmp_path)
    store = OperatorStore(files)
    good, bad = put(store, "key"), put(store, "no key")
    await good
    with pytest.raises(InvalidField):
        await bad
    await put(store, "key")
    assert files.writes == 1, "the same again is no change"
    store.close()


async def test_without_a_directory_everything_lives_in_memory(tmp_path: Path) -> None:
    """As long as the process does."""
    store = open_store("")
    await put(store, "key")
    assert store.state.configuration.get("NS", "key") == "v"
    store.close()
    assert not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_opened_lets_go_of_its_directory(tmp_path: Path) -> None:
    """Whoever has mended the file can start at once."""
    (tmp_path / CONFIGURATION).write_bytes(b"")
    with pytest.raises(FilesUnusable):
        open_store(str(tmp_path))
    (tmp_path / CONFIGURATION).unlink()
    open_store(str(tmp_path)).close()


@pytest.mark.parametrize("where", ["write", "on_change"])
async def test_a_bug_is_answered_and_the_next_change_is_made(tmp_path: Path, where: str) -> None:
    """Nobody waits for ever for a write that is not under way. What is on disk before the bug stays in effect."""
    files = OperatorFiles(tmp_path)
    store = OperatorStore(files)

    def bug(*_: object) -> None:
        raise IndexError("no such row")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files if where == "write" else store, where, bug)
        async with asyncio.timeout(30):
            refused = await asyncio.gather(put(store, "a"), put(store, "b"), return_exceptions=True)
    assert [getattr(error, "code", error) for error in refused] == ["internal"] * 2
    async with asyncio.timeout(30):
        await put(store, "c")
    assert list(store.state.configuration.listed("NS")) == (["c"] if where == "write" else ["a", "b", "c"])
    store.close()
    assert read(tmp_path) == store.state
