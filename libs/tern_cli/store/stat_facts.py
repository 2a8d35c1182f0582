"""Sizes and counts of a data directory, without reading its messages."""

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.store.native_directory import NodeDirectory
from tern_store.errors import LogRot, StoreError
from tern_store.keys.sent_key_file import KeyFile
from tern_store.keys.sent_keys import FOLDER as KEYS_FOLDER
from tern_store.keys.sent_keys import file_name
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryHeader, EntryKind, LogMark
from tern_wire.link.commands import ENTRY_HEAD

# Unit of the kernel's block counts, whatever the file system's block size is.
_BLOCK_SIZE_BYTES = 512
# Distance from an end of the log at which a time is searched: leaders' entries without commands
# come one or two at a time.
_NEIGHBOURS_MAX = 1_000
_OTHERS = "others"
_FOLDERS = ("commitlog", "entryindex", "consumequeue", "index", "timers", "sentkeys", "state", "config")


def facts_of(node: NodeDirectory) -> dict[str, Any]:
    """Return everything that `ternmq store stat` shows; `problems` lists unreadable parts."""
    problems: list[str] = []
    return {
        "directory": str(node.path),
        "is_clean": node.is_clean,
        "files": _files(node.path),
        "log": _log(node, problems),
        "topics": _attempt(lambda: _topics(node), problems, []),
        "index": _attempt(lambda: _index(node), problems, []),
        "timers_pending": _attempt(lambda: node.timers.pending, problems, None),
        "sealed_keys": _attempt(lambda: _sealed_keys(node), problems, None),
        "states": [
            {
                "file": f"state-{state.mark.index:020d}.bin",
                "index": state.mark.index,
                "term": state.mark.term,
                "position": state.mark.position,
                "size": len(state.payload),
            }
            for state in node.states
        ],
        "problems": list(dict.fromkeys(problems)),
    }


def _attempt(read: Any, problems: list[str], otherwise: Any) -> Any:
    try:
        return read()
    except CommandFailed as failure:
        problems.append(f"{failure.title}: {failure.detail}")
    except StoreError as error:
        problems.append(str(error))
    return otherwise


def _files(directory: Path) -> list[dict[str, Any]]:
    """Return the number of files of each kind, their bytes and the space they occupy."""
    kinds: dict[str, dict[str, Any]] = {
        kind: {"kind": kind, "files": 0, "size": 0, "on_disk": 0} for kind in (*_FOLDERS, _OTHERS, "together")
    }
    for path in directory.rglob("*"):
        try:
            facts = path.lstat()
        except FileNotFoundError:  # a running node has just removed it
            continue
        if not path.is_file():
            continue
        folder = path.relative_to(directory).parts[0]
        for kind in (folder if folder in _FOLDERS else _OTHERS, "together"):
            kinds[kind]["files"] += 1
            kinds[kind]["size"] += facts.st_size
            kinds[kind]["on_disk"] += facts.st_blocks * _BLOCK_SIZE_BYTES
    return list(kinds.values())


def _sealed_keys(node: NodeDirectory) -> int:
    """Return the number of idempotency keys in files, as of the newest saved state.
    Keys of the youngest table are in the state itself.
    """
    count = 0
    for number in node.sent_keys_marks:
        file, _ = KeyFile.open(node.path / KEYS_FOLDER / file_name(number), node.files)
        count += file.count
        file.close()
    return count


def _log(node: NodeDirectory, problems: list[str]) -> dict[str, Any]:
    """Return the first and last entry.
    The end is followed from the last entry in a saved state or the entry index.
    """
    known = node.mark_behind(node.entry_index.count)
    marks = [state.mark for state in node.states if state.mark.index > known.index]
    start = max([known, *marks], key=lambda mark: mark.index)
    end, is_torn = start, False
    first: EntryHeader | None = None
    last_ms: int | None = None
    try:
        for rot in node.rot:
            raise rot
        first = next(iter(node.log.scan(node.log.first) or ()), None)
        scan = node.log.scan(start)
        for header in scan or ():
            last_ms = _time_ms(node, header) or last_ms
        if scan is not None:
            end, is_torn = scan.end, scan.torn
    except LogRot as rot:
        problems.append(str(rot))
    return {
        "segments": sum(len(run.segments()) for run in node.log.runs),
        "segment_size": node.log.segment_size_bytes,
        "first_index": node.log.first.index + 1,
        "first_term": first.term if first is not None else None,
        "first_position": node.log.first.position,
        "first_ms": _first_ms(node),
        "last_index": end.index,
        "last_term": end.term,
        "end_position": end.position,
        "last_ms": last_ms or _last_ms(node, start),
        "entries": end.index - node.log.first.index,
        "is_torn": is_torn,
    }


def _time_ms(node: NodeDirectory, header: EntryHeader) -> int | None:
    """Return the logical time of an entry, None if it has none."""
    if header.kind is not EntryKind.COMMANDS:
        return None
    return int(ENTRY_HEAD.unpack(node.log.read(header.position + HEADER_SIZE_BYTES, ENTRY_HEAD.size))[2])


def _first_ms(node: NodeDirectory) -> int | None:
    """Return the time of the first entry that has one."""
    with suppress(LogRot):  # reported already, or by `ternmq store verify`
        for header in islice(node.log.scan(node.log.first) or (), _NEIGHBOURS_MAX):
            if (time_ms := _time_ms(node, header)) is not None:
                return time_ms
    return None


def _last_ms(node: NodeDirectory, end: LogMark) -> int | None:
    """Return the time of the last entry before *end* that has one and is in the entry index."""
    for index in range(end.index, max(node.log.first.index + 1, end.index - _NEIGHBOURS_MAX), -1):
        before = node.entry_index.find(index - 1)
        with suppress(LogRot):
            header = next(iter(node.log.scan(before.mark) or ()), None) if before is not None else None
            if header is not None and (time_ms := _time_ms(node, header)) is not None:
                return time_ms
    return None


def _topics(node: NodeDirectory) -> list[dict[str, Any]]:
    return [
        {
            "topic": node.topics.get(key[0], ""),
            "topic_id": key[0],
            "queue": key[1],
            "min": node.queues.min(key),
            "end": node.queues.end(key),
            "messages": node.queues.end(key) - node.queues.min(key),
        }
        for key in node.queues.all_keys()
    ]


def _index(node: NodeDirectory) -> list[dict[str, Any]]:
    marks = node.index_marks
    return [
        {
            "file": f"{base:020d}",
            "entries": next_entry - 1,
            "begin_ms": begin_ms,
            "end_ms": end_ms,
            "begin_position": begin,
            "end_position": end,
        }
        for base, next_entry, begin_ms, end_ms, begin, end, *_ in (marks[4] if marks else [])
    ]
