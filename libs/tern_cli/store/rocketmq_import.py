"""Import of a RocketMQ store's messages into a running mesh, and the note of its progress.

The note, JSON beside the store, has the store, the mesh, the choice of topics, the position in the
store's log up to which everything is confirmed, and the counts so far.

Law: a round of messages is sent and confirmed, then the note is written. An interrupted import
therefore repeats at most its last round, with the same idempotency keys. Every message keeps its
queue and its place in it.
"""

import contextlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.store.rocketmq_log import DispatchedRecords, RocketLog
from tern_cli.store.rocketmq_message import message_of, told_apart
from tern_cli.store.rocketmq_topics import own_topic
from tern_client import BlockingAdmin, BlockingProducer, OutgoingMessage, RetryPolicy
from tern_wire.errors import (
    CompressionNotInstalled,
    IdempotencyKeyReused,
    IllegalTopic,
    RecordMalformed,
    TernError,
    TopicConflict,
)
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.names import is_of, own_name, parse_queue, topic_in
from tern_wire.records.read import RocketRecord

# Bytes of records between two writes of the note, sent or not: a long stretch of a store's own
# topics counts too.
ROUND_SIZE_MAX_BYTES = 8 << 20
# Refused messages that are listed; the others are only counted.
REFUSALS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoice:
    """Selection and renaming of topics.
    *topics* (names in the store): only these, all if empty. *namespace*: the target.
    """

    topics: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    round_messages: int = 4096
    namespace: str = ""


@dataclass(slots=True)
class ImportTally:
    """Counts, kept in the note.
    *skipped*: reason to number of messages. *refused*: messages that the mesh refused; *refusals*
    has the reasons of the first ones.
    """

    messages: int = 0
    replayed: int = 0
    topics: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    refusals: list[str] = field(default_factory=list)


class RocketImport:
    """One import. Owner: the command. `run` runs once, from the position in the note."""

    def __init__(
        self, log: RocketLog, choice: ImportChoice, endpoints: Sequence[str], note: Path, *, patience_ms: int = 30_000
    ) -> None:
        """Read the note; CommandFailed (exit 2) if it is of another store, mesh or choice.
        *patience_ms*: how long a request is repeated while the mesh does not accept it.
        """
        self._log, self._choice, self._endpoints, self._note = log, choice, list(endpoints), note
        self._policy = RetryPolicy(deadline_ms=patience_ms)
        self._dispatched = DispatchedRecords(log.directory)
        self._queues: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._identity = {
            "store": str(log.directory.absolute()),
            "endpoints": self._endpoints,
            "topics": sorted(choice.topics),
            "rename": dict(sorted(choice.renamed.items())),
            **({"namespace": choice.namespace} if choice.namespace else {}),
        }
        self.position, self.done, self.tally = self._read_note()

    def run(self, progress: Callable[[int, int], None]) -> ImportTally:
        """Send the remaining messages. *progress* gets messages and bytes of the log.
        CommandFailed or a TernError ends the import. Confirmed messages stay in the note, and the
        next run continues from there.
        """
        self._counts = self._log.queue_counts()
        with (
            BlockingProducer(self._endpoints, namespace=self._choice.namespace, policy=self._policy) as producer,
            BlockingAdmin(self._endpoints, namespace=self._choice.namespace, policy=self._policy) as admin,
        ):
            for end, found in self._rounds():
                by_topic: dict[str, list[tuple[OutgoingMessage, RocketRecord]]] = defaultdict(list)
                for topic, record in found:
                    self._take(admin, topic, record, by_topic)
                for topic, taken in by_topic.items():
                    self._send(producer, topic, taken)
                size_bytes, self.position = end - self.position, end
                self._write_note()
                progress(len(found), size_bytes)
        self.done = True
        self._write_note()
        return self.tally

    # From the store -------------------------------------------------------------------------------
    def _rounds(self) -> Iterator[tuple[int, list[tuple[str, RocketRecord]]]]:
        """Yield rounds of messages with new topic names, and the log position behind each."""
        found: list[tuple[str, RocketRecord]] = []
        skipped: Counter[str] = Counter()
        begin = end = self.position
        damage: CommandFailed | None = None
        try:
            for position, record in self._log.records(self.position):
                end = position + record.size_bytes
                name, reason = self._name(position, record)
                if reason:
                    skipped[reason] += 1
                elif name:
                    found.append((name, record))
                if len(found) >= self._choice.round_messages or end - begin >= ROUND_SIZE_MAX_BYTES:
                    self._count(skipped)
                    yield end, found
                    found, skipped, begin = [], Counter(), end
        except CommandFailed as failure:
            damage = failure
        self._count(skipped)
        yield end, found
        if damage is not None:
            raise damage

    def _name(self, position: int, record: RocketRecord) -> tuple[str, str]:
        """Return the record's target topic, or the reason to skip it; two "" if unselected."""
        topic = record.topic_name
        if self._choice.topics and topic not in self._choice.topics:
            return "", ""
        renamed = self._choice.renamed.get(topic)
        own = own_topic(topic)
        if own and renamed is None:
            return "", f"{topic}: {own}"
        if (position, record) not in self._dispatched:
            return "", f"{topic}: in no queue"
        try:
            # RocketMQ's clients also write namespace%topic.
            is_ours = self._choice.namespace and is_of(self._choice.namespace, topic)
            return topic_in("", renamed or (own_name(topic) if is_ours else topic)), ""
        except IllegalTopic:
            return "", f"{topic}: not a valid name here; rename it with --rename '{topic}=NEW'"

    def _count(self, skipped: Counter[str]) -> None:
        for reason, count in skipped.items():
            self.tally.skipped[reason] = self.tally.skipped.get(reason, 0) + count

    # To the mesh ----------------------------------------------------------------------------------
    def _take(
        self,
        admin: BlockingAdmin,
        topic: str,
        record: RocketRecord,
        by_topic: dict[str, list[tuple[OutgoingMessage, RocketRecord]]],
    ) -> None:
        queues = self._queues.get(topic) or self._make_topic(admin, topic, record.topic_name)
        try:
            by_topic[topic].append((message_of(record, queues[record.queue % len(queues)]), record))
        except CompressionNotInstalled as error:
            raise CommandFailed("The import stopped", error.detail) from error
        except RecordMalformed as error:
            self._refuse(topic, record, str(error.fields["reason"]))

    def _make_topic(self, admin: BlockingAdmin, topic: str, stored_as: str) -> list[str]:
        """Return the topic's queues in one broker group, by number; create missing ones."""
        wanted = min(max(self._counts.get(stored_as, 0), 1), QUEUES_PER_TOPIC_MAX)
        # An existing topic with more queues than the store's serves as well.
        with contextlib.suppress(TopicConflict):
            admin.create_topic(topic, wanted)
        names = [parse_queue(row.queue, topic) for row in admin.offsets(topic)]
        # One broker group takes the whole store, so that a queue stays one queue.
        first = min(name.broker_group for name in names)
        queues = [str(name) for name in sorted(names) if name.broker_group == first]
        self._queues[topic] = queues
        if topic not in self.tally.topics:
            self.tally.topics.append(topic)
        return queues

    def _send(
        self, producer: BlockingProducer, topic: str, taken: Sequence[tuple[OutgoingMessage, RocketRecord]]
    ) -> None:
        outcome = producer.send_batch(topic, [message for message, _ in taken], return_errors=True)
        reused: list[tuple[OutgoingMessage, RocketRecord]] = []
        for (message, record), receipt, at in zip(taken, outcome.receipts, range(len(taken)), strict=True):
            error = outcome.errors.get(at)
            if receipt is not None:
                self.tally.messages += 1
                self.tally.replayed += receipt.replayed
            elif isinstance(error, IdempotencyKeyReused) and "@" not in message.idempotency_key:
                reused.append((told_apart(message, record), record))
            elif error is not None and error.retryable:
                raise error
            elif error is not None:
                self._refuse(topic, record, error.detail)
        if reused:
            self._send(producer, topic, reused)

    def _refuse(self, topic: str, record: RocketRecord, reason: str) -> None:
        self.tally.refused += 1
        if len(self.tally.refusals) < REFUSALS_SHOWN_MAX:
            place = f"{record.topic_name}, queue {record.queue}, offset {record.queue_offset}"
            self.tally.refusals.append(f"{place} (for {topic}): {reason}")

    # The note -------------------------------------------------------------------------------------
    def _read_note(self) -> tuple[int, bool, ImportTally]:
        try:
            document: dict[str, Any] = json.loads(self._note.read_bytes())
            identity = {name: document[name] for name in self._identity}
            position, done, tally = int(document["position"]), bool(document["done"]), ImportTally(**document["tally"])
        except FileNotFoundError:
            return self._log.begin, False, ImportTally()
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed(
                "The note of an earlier import cannot be read",
                f"{self._note}: {error}. Name another with --state.",
                exit_code=2,
            ) from error
        if identity != self._identity:
            other = next(name for name in identity if identity[name] != self._identity[name])
            raise CommandFailed(
                "An earlier import was another one",
                f"{self._note} says {other} {identity[other]}, now it is {self._identity[other]}. Repeat that command to continue "
                "it, or name another note with --state to start again.",
                exit_code=2,
            )
        return position, done, tally

    def _write_note(self) -> None:
        """Replace the note atomically.
        It is not synced: idempotency keys absorb the repeated sends after a lost note.
        """
        document = {**self._identity, "position": self.position, "done": self.done, "tally": asdict(self.tally)}
        draft = self._note.with_name(f"{self._note.name}.{os.getpid()}.new")
        try:
            draft.write_text(json.dumps(document, indent=1, ensure_ascii=False))
            draft.rename(self._note)
        except OSError as error:
            raise CommandFailed(
                "The note cannot be written",
                f"{self._note}: {error.strerror}. Name another place with --state.",
                exit_code=2,
            ) from error


def send_failed(error: TernError, note: Path) -> CommandFailed:
    """Return the error that stopped an import, with the way to continue."""
    return CommandFailed(
        error.title, f"{error.detail} What is confirmed stands in {note}: repeat the command to go on from there."
    )
