"""Contents of a data directory as documents: entries, records, queues, key index, timers, states.

Law: at most a few MiB of the log or some thousand rows are in memory. Damage ends a dump with file
and byte, after everything before the damage. Sizes are bytes, times ms since the epoch; a position
is a byte of the log.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from tern_cli.failures import CommandFailed
from tern_cli.store.native_directory import NodeDirectory
from tern_cli.store.native_selection import Selection, What
from tern_store.checks.log_check import LogSpan
from tern_store.checks.record_check import sends_of
from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage, LogRot, StoreError
from tern_store.index.index_folder import FOLDER as INDEX_FOLDER
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryHeader, EntryKind, LogMark
from tern_store.log.genesis import Genesis
from tern_store.queues.consume_queue import QueueKey
from tern_store.state.saving import split_payload
from tern_store.state.state_file import STATE_FOLDER
from tern_store.timers.walk import TimerPage
from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.link.commands import SEND_HEAD, STORING, Command, CommandKind, read_entry
from tern_wire.link.rows import LEASE_ROWS, SETTLE_ROWS
from tern_wire.records.compression import encoding_of
from tern_wire.records.index_layout import INDEX_ENTRY_SIZE_BYTES, INDEX_ROWS, entry_start
from tern_wire.records.layout import SIZE
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS
from tern_wire.records.read import decode_rocketmq_record

Document = dict[str, Any]
Documents = Iterator[Document]
_PAGE_ROWS = 4096
_TIME_MAX_MS = (1 << 62) - 1


def documents(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    """Yield the documents that *selection* selects, in order.
    CommandFailed after the last document before damage.
    """
    dumps = {
        What.ENTRIES: _entries,
        What.RECORDS: _records,
        What.QUEUES: _queues,
        What.INDEX: _index,
        What.TIMERS: _timers,
        What.STATE: _states,
    }
    try:
        yield from islice(dumps[selection.what](node, selection, warn), selection.count)
    except LogRot as rot:
        file, at = node.log.place(rot.position)
        detail = f"{file}, byte {at}: {rot.reason}. What stands before it has been shown; `ternmq store verify` finds the rest."
        raise CommandFailed("The log is damaged", detail) from rot
    except DerivedDamage as damage:
        detail = f"{damage.file}, byte {damage.position}: {damage.reason}. The node derives it again from its log."
        raise CommandFailed("A derived file is damaged", detail) from damage


# The log ------------------------------------------------------------------------------------------
def _spans(node: NodeDirectory, mark: LogMark, stop: int, warn: Callable[[str], None]) -> Iterator[LogSpan]:
    log = node.log
    for rot in node.rot:
        raise rot
    end = mark
    for span in log.spans(mark, stop):
        yield span
        end = span.headers[-1].mark
    if end.position < stop:
        if end.position == mark.position and log.run_at(mark.position) is None:
            raise LogRot(log.place(mark.position)[0], mark.position, "the segment is missing")
        scan = log.scan(end)
        if scan is not None and not list(islice(scan, 1)) and scan.torn:
            warn(f"Entry {end.index + 1} was torn by a crash; the node cuts it at its next start.")


def _entries(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    mark = node.mark_before(selection.begin) if selection.first is None else node.mark_behind(selection.first - 1)
    for span in _spans(node, mark, selection.stop, warn):
        for header in span.headers:
            if header.index >= (selection.first or 0) and header.position >= selection.begin:
                yield _entry(header, memoryview(span.data)[header.position - span.position :][: header.size])


def _entry(header: EntryHeader, raw: memoryview) -> Document:
    body = raw[HEADER_SIZE_BYTES:]
    document: Document = {
        "index": header.index,
        "term": header.term,
        "position": header.position,
        "size": header.size,
        "kind": header.kind.name.lower(),
        "version": header.version,
        "flags": header.flags,
        "crc": header.crc,
        "now_ms": None,
        "commands": [],
    }
    if header.kind is EntryKind.GENESIS:
        genesis = Genesis.decode(body)
        document["group_id"], document["members"] = genesis.group_id.hex(), sorted(genesis.members)
        document["segment_size_bytes"] = genesis.segment_size_bytes
    if header.kind is EntryKind.COMMANDS:
        try:
            document["now_ms"], commands = read_entry(body)
            document["commands"] = [_command(command) for command in commands]
        except LinkBodyMalformed as error:
            document["malformed"] = str(error.fields["reason"])
    return document


def _command(command: Command) -> Document:
    known = command.kind in set(CommandKind)
    count = 1
    if command.kind in STORING and len(command.payload) >= SEND_HEAD.size:
        count = SEND_HEAD.unpack_from(command.payload)[0]
    elif command.kind in {CommandKind.LEASE, CommandKind.SETTLE}:
        rows = LEASE_ROWS if command.kind == CommandKind.LEASE else SETTLE_ROWS
        count = len(command.payload) // rows.itemsize
    kind = CommandKind(command.kind).name.lower() if known else str(command.kind)
    return {"kind": kind, "count": count, "size": len(command.payload)}


def _records(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    if selection.topic is not None and selection.queue is not None:
        yield from _records_of_queue(node, selection)
        return
    offsets = _Offsets(node, warn)
    begin = max(selection.begin, selection.first or 0)

    def malformed(index: int, position: int, reason: str) -> None:
        warn(f"Entry {index}, position {position}: {reason}")

    for span in _spans(node, node.mark_before(begin), selection.stop, warn):
        for send in sends_of(span, malformed):
            at = 0
            for topic_id in send.rows["topic"].tolist():
                size = SIZE.unpack_from(send.records, at)[0]
                data, position = send.records[at : at + size], send.position + at
                at += size
                if position < begin:
                    continue
                document = _record(data, position, selection.bodies)
                key = (topic_id, document["queue"])
                if selection.wants_topic(topic_id, document["topic"]) and selection.wants_queue(document["queue"]):
                    yield document | {"offset": offsets.find(key, position), "topic_id": topic_id, "entry": send.index}


def _records_of_queue(node: NodeDirectory, selection: Selection) -> Documents:
    for key in _keys(node, selection):
        for offset, position, size, _ in _queue_rows(node, key, selection.first or 0):
            data = node.log.read(position, size)
            if len(data) < size:
                raise LogRot(node.log.place(position)[0], position, f"the record of offset {offset} is not there")
            document = _record(data, position, selection.bodies)
            yield document | {"offset": offset, "topic_id": key[0], "entry": None}


def _record(data: bytes | memoryview, position: int, bodies: bool) -> Document:
    try:
        record = decode_rocketmq_record(data)
        if crc32(record.body) & 0x7FFFFFFF != record.body_crc:
            raise CommandFailed(
                "A record is damaged", f"The body of the record at position {position} does not have its CRC."
            )
    except RecordMalformed as error:
        reason = str(error.fields["reason"])
        raise CommandFailed("A record is damaged", f"At position {position} of the log: {reason}.") from error
    properties = record.property_map()
    document = {
        "topic": record.topic_name,
        "topic_id": 0,
        "queue": record.queue,
        "offset": None,
        "position": position,
        "entry": None,
        "size": record.size_bytes,
        "body_size": len(record.body),
        "tag": properties.get(TAGS, ""),
        "keys": properties.get(KEYS, "").split(),
        "message_id": properties.get(MESSAGE_ID, ""),
        "born_ms": record.born_ms,
        "stored_ms": record.stored_ms,
        "body_crc": record.body_crc,
        "properties": properties,
    }
    if encoding := encoding_of(record.sysflag):
        document["content_encoding"] = encoding
    return document | {"body": b64encode(record.body).decode()} if bodies else document


class _Offsets:
    """Offsets of records, as far as their queues list them.
    Owner: one dump, which searches in the order of the log.
    """

    def __init__(self, node: NodeDirectory, warn: Callable[[str], None]) -> None:
        self._node, self._warn, self._is_known = node, warn, True
        # Queue -> offset of the first of some consecutive entries, and the positions of these
        # entries.
        self._pages: dict[QueueKey, tuple[int, Any]] = {}

    def find(self, key: QueueKey, position: int) -> int | None:
        """Return the offset of the record at *position*.
        None if no entry near the expected place points there, or if the queues cannot be read.
        """
        if not self._is_known:
            return None
        first, positions = self._pages.get(key, (0, np.zeros(0, np.int64)))
        found = np.flatnonzero(positions == position)
        if not len(found):
            try:
                first, positions = self._pages[key] = self._page(key, position)
            except (CommandFailed, StoreError) as error:
                self._is_known = False
                self._warn(f"Offsets are unknown: {error}")
                return None
            found = np.flatnonzero(positions == position)
        return first + int(found[0]) if len(found) else None

    def _page(self, key: QueueKey, position: int) -> tuple[int, Any]:
        """Return a page of entries, from the first one at or behind *position* on.
        The bisection is right where positions ascend, which they do except for late messages.
        """
        queues = self._node.queues
        low, high = queues.min(key), queues.end(key)
        while low < high:
            middle = (low + high) // 2
            if int(queues.read(key, middle, 1)["position"][0]) < position:
                low = middle + 1
            else:
                high = middle
        return low, queues.read(key, low, _PAGE_ROWS)["position"].astype(np.int64)


# Derived files ------------------------------------------------------------------------------------
def _keys(node: NodeDirectory, selection: Selection) -> list[QueueKey]:
    keys = [key for key in node.queues.all_keys() if selection.wants_topic(key[0], node.topics.get(key[0], ""))]
    found = [key for key in keys if selection.wants_queue(key[1])]
    if not found and (selection.topic is not None or selection.queue is not None):
        detail = "No queue with messages has this topic (a name or an id) and this number."
        raise CommandFailed("No such queue", detail, exit_code=2)
    return found


def _queue_rows(node: NodeDirectory, key: QueueKey, first: int) -> Iterator[tuple[int, int, int, int]]:
    offset, end = max(first, node.queues.min(key)), node.queues.end(key)
    while offset < end:
        rows = node.queues.read(key, offset, _PAGE_ROWS).tolist()
        for number, (position, size, tag) in enumerate(rows):
            yield offset + number, position, size, tag
        offset += len(rows)


def _queues(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    del warn
    for key in _keys(node, selection):
        who = {"topic": node.topics.get(key[0], ""), "topic_id": key[0], "queue": key[1]}
        yield who | {"min": node.queues.min(key), "end": node.queues.end(key)}
        for offset, position, size, tag in _queue_rows(node, key, selection.first or 0):
            yield who | {"offset": offset, "position": position, "size": size, "tag_hash": tag}


def _index(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    del warn
    marks = node.index_marks
    slots, files = (marks[0], marks[4]) if marks else (0, [])
    for base, next_entry, begin_ms, end_ms, begin, end, *_ in files:
        name = f"{base:020d}"
        if selection.file not in {None, name}:
            continue
        yield {
            "file": name,
            "entries": next_entry - 1,
            "slots": slots,
            "begin_ms": begin_ms,
            "end_ms": end_ms,
            "begin_position": begin,
            "end_position": end,
        }
        number = max(1, selection.first or 1)
        while number < next_entry:
            rows = _index_rows(node, name, slots, number, min(_PAGE_ROWS, next_entry - number))
            for key_hash, position, seconds, previous in rows.tolist():
                yield {
                    "file": name,
                    "number": number,
                    "key_hash": key_hash,
                    "position": position,
                    "stored_ms": begin_ms + 1000 * seconds,
                    "previous": previous,
                }
                number += 1


def _index_rows(node: NodeDirectory, name: str, slots: int, number: int, count: int) -> Any:
    path, at, size = node.path / INDEX_FOLDER / name, entry_start(slots, number), count * INDEX_ENTRY_SIZE_BYTES
    try:
        fd = node.files.open(path)
    except FileNotFoundError as error:
        raise DerivedDamage(path, 0, "the file is missing") from error
    try:
        data = node.files.pread(fd, size, at)
    finally:
        node.files.close(fd)
    if len(data) < size:
        raise DerivedDamage(path, at + len(data), "the file ends here")
    return np.frombuffer(data, INDEX_ROWS)


def _timers(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    del warn
    after: tuple[int, int] | None = None
    while True:
        page = TimerPage(selection.first or 0, _TIME_MAX_MS, _PAGE_ROWS, after=after)
        if not len(rows := page.fill(node.timers.walk(page.begin_ms, page.end_ms))):
            break
        for deliver_ms, timer_id, position, size, topic_id, queue, _, tag in rows.tolist():
            after = (deliver_ms, timer_id)
            topic = node.topics.get(topic_id, "")
            if selection.wants_topic(topic_id, topic) and selection.wants_queue(queue):
                who = {"topic": topic, "topic_id": topic_id, "queue": queue}
                where = {"position": position, "size": size, "tag_hash": tag}
                yield {"deliver_ms": deliver_ms, "timer_id": timer_id, **who, **where}


def _states(node: NodeDirectory, selection: Selection, warn: Callable[[str], None]) -> Documents:
    readable = {f"state-{state.mark.index:020d}.bin": state for state in node.states}
    for name in sorted(node.files.listdir(node.path / STATE_FOLDER), reverse=True):
        if name.startswith("state-") and selection.file in {None, name}:
            if name not in readable:
                warn(f"{node.path / STATE_FOLDER / name} cannot be read: its checksum is wrong, or it is cut off.")
                continue
            state = readable[name]
            section: dict[str, Any] = {}
            try:
                section = split_payload(state.payload)[0]
            except StoreError as error:
                warn(f"{name}: {error}.")
            yield {
                "file": name,
                "index": state.mark.index,
                "term": state.mark.term,
                "position": state.mark.position,
                "crc": state.mark.crc,
                "payload_bytes": len(state.payload),
                "queues": len(section["queues"][0][1]) if section else 0,
                "marks": _plain(section),
            }


def _plain(value: Any) -> Any:
    """Return saved marks as JSON values: bytes become hex digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value
