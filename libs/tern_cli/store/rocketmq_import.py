"""The messages of a RocketMQ store sent into a running mesh, and a note of how far that is.

The note, JSON beside the store: which store went to which mesh with which choice of topics, the position in the store's log up to
which everything is confirmed, and the counts so far.
Law: a round of messages is sent and confirmed, then the note is written. So an import that was interrupted sends at most its last
round again, and those carry the idempotency keys that they had; every message keeps its queue and its place in it.
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

# Records between two looks at the note, whatever of them is sent: a long stretch of a store's own topics counts too.
ROUND_SIZE_MAX_BYTES = 8 << 20
# Refused messages that are told one by one; of the others there is a count.
REFUSALS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoice:
    """What of the store goes in, and under which names. *topics* (the store's names): these only, all if empty. *namespace*: where it goes."""

    topics: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    round_messages: int = 4096
    namespace: str = ""


@dataclass(slots=True)
class ImportTally:
    """Counts, kept in the note. *skipped*: reason to messages; *refused*: what the mesh would not take, the first ones with why."""

    messages: int = 0
    replayed: int = 0
    topics: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    refusals: list[str] = field(default_factory=list)


class RocketImport:
    """One import. Owner: the command; `run` does it once, from where the note says."""

    def __init__(
        self, log: RocketLog, choice: ImportChoice, endpoints: Sequence[str], note: Path, *, patience_ms: int = 30_000
    ) -> None:
        """Reads the note; CommandFailed (exit 2) if it is of another store, mesh or choice.

        *patience_ms*: how long a request is repeated while the mesh does not take it.
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
        """Send what is left. *progress* is told messages and bytes of the log.

        CommandFailed or a TernError ends it; what is confirmed stays in the note, and the next run goes on from there.
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

    # From the store --------------------------------------------------------------------------------------------
    def _rounds(self) -> Iterator[tuple[int, list[tuple[str, RocketRecord]]]]:
        """Messages with the names that their topics get here, a round at a time, and where the log goes on behind them."""
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
        """The topic that the record goes to, or why it is skipped; both empty if it was not asked for."""
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
            # RocketMQ's clients write namespace%topic, too.
            is_ours = self._choice.namespace and is_of(self._choice.namespace, topic)
            return topic_in("", renamed or (own_name(topic) if is_ours else topic)), ""
        except IllegalTopic:
            return "", f"{topic}: not a name here; give it one with --rename '{topic}=NEW'"

    def _count(self, skipped: Counter[str]) -> None:
        for reason, count in skipped.items():
            self.tally.skipped[reason] = self.tally.skipped.get(reason, 0) + count

    # To the mesh -----------------------------------------------------------------------------------------------
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
        """The topic's queues in one broker group, by number; made if they are not there."""
        wanted = min(max(self._counts.get(stored_as, 0), 1), QUEUES_PER_TOPIC_MAX)
        # It may be there with more queues than the store's: that is as good.
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
        outcome = producer.send_batch(topic, [message for message, _ in taken])
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

    # The note --------------------------------------------------------------------------------------------------
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
                f"{self._note} says {other} {identity[other]}, now it is {self._identity[other]}. Repeat that command to go on "
                "with it, or name another note with --state to begin anew.",
                exit_code=2,
            )
        return position, done, tally

    def _write_note(self) -> None:
        """The note appears whole. Not synced: a lost one repeats what idempotency keys catch."""
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
    """What stopped an import, and that it can go on."""
    return CommandFailed(
        error.title, f"{error.detail} What is confirmed stands in {note}: repeat the command to go on from there."
    )
