"""Everything that was promised, read back: each queue of a load by pull of records, every body compared; and the replicas' logs byte by byte.

lost        an acknowledged message is not where its receipt says, or not as it was sent
reordered   two messages of a sender are not in the order in which they were sent
duplicated  a keyed message is stored twice
unexpected  a message that nobody sent, or behind what was acknowledged
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from tern_wire import paths
from tern_wire.records.layout import HEAD_SIZE_BYTES
from tests.chaos.client import Client, pause
from tests.chaos.load import BODY_HEAD, VIOLATIONS_MAX, Load, Sender
from tests.support.files.shared_log import shared_parts

PAGE = "max_messages=16384&max_bytes=4194304"
PAGE_WITHIN_S = 30.0
# Size, offset in the queue and size of the body of a record's head (tern_wire.records.layout); the rest is skipped.
_HEAD = struct.Struct(">I16xq56xI")
assert _HEAD.size == HEAD_SIZE_BYTES
_HEADERS = f"accept: {paths.RECORDS}\r\n".encode()


class Stored(NamedTuple):
    """What a reader compares."""

    offset: int
    body: bytes


def stored_in(page: bytes) -> Iterator[Stored]:
    """The messages of a page of records; ValueError when it is none."""
    at = 0
    while at < len(page):
        size, offset, body_size = _HEAD.unpack_from(page, at)
        body_at = at + _HEAD.size
        if size < _HEAD.size + body_size or at + size > len(page):
            raise ValueError(f"a record at byte {at} of a page claims {size} bytes")
        yield Stored(offset, page[body_at : body_at + body_size])
        at += size


@dataclass(slots=True)
class Findings:
    """What was read and what was wrong with it."""

    read: int = 0
    lost: int = 0
    reordered: int = 0
    duplicated: int = 0
    unexpected: int = 0
    wrong_bytes: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    witnesses: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong."""
        return not (self.lost or self.reordered or self.duplicated or self.unexpected or self.wrong_bytes)

    def found(self, what: str, sentence: str) -> None:
        """One thing is wrong."""
        setattr(self, what, getattr(self, what) + 1)
        if len(self.witnesses) < VIOLATIONS_MAX:
            self.witnesses.append(f"{what}: {sentence}")

    def document(self) -> dict[str, object]:
        """As JSON takes it."""
        return {**asdict(self), "refused": {str(status): count for status, count in self.refused.items()}}


async def read_back(load: Load, *, within_s: float = 120) -> Findings:
    """Compare every queue of *load*, which must be at rest, with its promise."""
    findings = Findings()
    until = asyncio.get_running_loop().time() + within_s
    client = Client(*load.proxies[0])
    for sender in load.senders:
        await _read_queue(load, sender, client, findings, until)
    client.close()
    return findings


async def _read_queue(load: Load, sender: Sender, client: Client, findings: Findings, until: float) -> None:
    reader = QueueReader(load, sender, findings)
    at = "earliest"
    while True:
        path = f"{paths.pull_path(load.topic, sender.queue)}?offset={at}&{PAGE}"
        status, answer = await client.ask("GET", path, _HEADERS, within_s=PAGE_WITHIN_S)
        if status != 200:
            findings.refused[status] += 1
            assert asyncio.get_running_loop().time() < until, f"{path}: {status} {answer[:200]!r}"
            await pause(0.05)
            continue
        if not answer:
            break
        for message in stored_in(answer):
            reader.take(message)
        at = str(message.offset + 1)
    reader.end()


class QueueReader:
    """Compares the messages of one queue, in their order, with the promise to its sender."""

    def __init__(self, load: Load, sender: Sender, findings: Findings) -> None:
        self._load, self._sender, self._findings = load, sender, findings
        # The number that the next message must have. Retention may have dropped the first ones.
        self._expected = -1

    def take(self, message: Stored) -> None:
        """Compare one message with what must lie there."""
        findings, sender = self._findings, self._sender
        where = f"{sender.queue} offset {message.offset}"
        findings.read += 1
        written, number = -1, -1
        if len(message.body) >= BODY_HEAD.size:
            written, number = BODY_HEAD.unpack_from(message.body)
        if written != sender.number or message.body != self._load.bodies.body(sender.number, number):
            findings.found("wrong_bytes", f"{where} holds bytes that nobody sent")
            self._expected += self._expected >= 0
            return
        if self._expected < 0:
            self._expected = message.offset if self._load.is_keyed else number
        if number > self._expected:
            findings.found("lost", f"{where} holds {number}, not {self._expected}")
            findings.lost += number - self._expected - 1
        elif number < self._expected:
            if self._load.is_keyed:
                findings.found("duplicated", f"{where} holds {number} again")
                return
            if number < self._expected - sender.batch:
                # Without keys a batch may be there twice, but not after a later one.
                findings.found("reordered", f"{where} holds {number} behind {self._expected - 1}")
        elif self._load.is_keyed and number != message.offset:
            findings.found("reordered", f"{where} holds {number}")
        if number >= sender.acked:
            findings.found("unexpected", f"{where} holds {number}, {sender.acked} were acknowledged")
        self._expected = number + 1

    def end(self) -> None:
        """There is no more."""
        stored = max(0, self._expected)
        if stored < self._sender.acked:
            text = f"{self._sender.queue} ends at {stored}, {self._sender.acked} were acknowledged"
            self._findings.found("lost", text)
            self._findings.lost += self._sender.acked - stored - 1


def compare_logs(directories: Sequence[Path], end_position: int) -> tuple[int, list[str]]:
    """Bytes compared and differences of the commit logs of stopped nodes, up to *end_position*; what is each node's own left out."""
    logs = [{path.name: path for path in (directory / "commitlog").glob("0*")} for directory in directories]
    names = sorted(set().union(*logs))
    compared, different = 0, []
    for name in names:
        start = int(name)
        paths_of = [log.get(name) for log in logs]
        if start >= end_position:
            continue
        if not all(paths_of):
            different.append(f"segment {name} is not on every node")
            continue
        sizes = {path.stat().st_size for path in paths_of if path}
        size = min(*sizes, end_position - start)
        at = 0
        for parts in zip(*(shared_parts(path, size) for path in paths_of if path), strict=True):
            if len(set(parts)) != 1:
                different.append(f"segment {name} differs within 1 MiB of byte {at}")
                break
            at += len(parts[0])
        compared += at
    return compared, different
