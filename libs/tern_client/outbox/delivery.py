"""Sending the rows of one batch, and looking for rows that may have been sent long ago: the part of
a relay that speaks to the server.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tern_client.asynchronous.queries import QueryCalls
from tern_client.asynchronous.sending import PlainProducer
from tern_client.calls.models import BatchOutcome, OutgoingMessage
from tern_client.calls.sending import none_stored, send_many
from tern_client.outbox.batches import by_topic, is_about_all, is_refusal, requests_of
from tern_client.outbox.rows import ClaimedRow, Head, key_of
from tern_client.transport.clock import now_ms
from tern_wire.errors import OutcomeUnknown, TernError, TopicNotFound

# Searches at a time, and topics.
_SEARCHES_MAX, _TOPICS_MAX = 8, 16
# Answers of one search: each looks at 8,192 messages with keys of that hash, and one is enough.
_PAGES_MAX = 8
# Clocks of a relay and of the brokers may differ by that.
_CLOCKS_DIFFER_MAX_MS = 3_600_000


@dataclass(slots=True)
class Delivered:
    """How rows ended by number; `later`: topics whose rows stay, and why."""

    sent: list[int] = field(default_factory=list)
    refused: dict[int, TernError] = field(default_factory=dict)
    later: dict[str, TernError] = field(default_factory=dict)


class RelayClient(PlainProducer, QueryCalls):
    """The client of a relay: it sends batches as they are, and searches by key."""

    __slots__ = ()

    async def deliver(self, topic: str, messages: Sequence[OutgoingMessage]) -> BatchOutcome:
        """Send *messages*, each with its own idempotency key, and repeat what fails for now until
        the deadline. The relay itself keeps the order.
        """
        try:
            return await self._drive(send_many(self._course, topic, messages, now_ms()))
        except TernError as error:
            return none_stored(len(messages), error)

    async def is_stored(self, head: Head) -> bool:
        """Whether the server has the message of a row. TernError when that cannot be known."""
        since_ms = max(0, (head.attempted_at or 0) - _CLOCKS_DIFFER_MAX_MS)
        cursor, is_incomplete = "", False
        for _ in range(_PAGES_MAX):
            try:
                found = await self.find(head.topic, key_of(head.id), begin=since_ms, limit=1, cursor=cursor)
            except TopicNotFound:
                return False
            if found["messages"]:
                return True
            cursor, is_incomplete = found.get("next_cursor", ""), bool(found.get("truncated"))
            if not cursor:
                break
        if cursor or is_incomplete:
            raise OutcomeUnknown(endpoint=head.topic, reason="the search for the row's key did not come to its end")
        return False


async def deliver(
    client: RelayClient, rows: Sequence[ClaimedRow], is_in_time: Callable[[], bool], into: Delivered
) -> None:
    """Send *rows*, topics side by side, the requests of a topic one after the other; no further
    request when *is_in_time* says no. What is known so far is in *into*, also after a cancellation.
    """
    places = asyncio.Semaphore(_TOPICS_MAX)

    async def deliver_one(topic: str, of_topic: Sequence[ClaimedRow]) -> None:
        async with places:
            await _deliver_topic(client, topic, of_topic, is_in_time, into)

    async with asyncio.TaskGroup() as tasks:
        for topic, of_topic in by_topic(rows).items():
            tasks.create_task(deliver_one(topic, of_topic))


async def _deliver_topic(
    client: RelayClient, topic: str, rows: Sequence[ClaimedRow], is_in_time: Callable[[], bool], into: Delivered
) -> None:
    requests = list(requests_of(topic, rows))
    while requests and topic not in into.later and is_in_time():
        part = requests.pop(0)
        outcome = await client.deliver(topic, [row.message for row in part])
        if is_about_all(outcome.errors, len(part)) and is_refusal(outcome.errors[0]):
            # One of them may be the reason for all: each alone, in order.
            requests[:0] = [[row] for row in part]
            continue
        for at, row in enumerate(part):
            error = outcome.errors.get(at)
            if error is None:
                into.sent.append(row.head.seq)
            elif is_refusal(error):
                into.refused[row.head.seq] = error
            else:
                into.later.setdefault(topic, error)


async def search(client: RelayClient, heads: Sequence[Head], into: Delivered) -> list[int]:
    """Look for the messages of *heads*. Those that are stored count as sent in *into*; return the
    numbers of those that are not. A row whose search fails stays as it is, and its topic waits.
    """
    places = asyncio.Semaphore(_SEARCHES_MAX)
    unsent: list[int] = []

    async def look(head: Head) -> None:
        async with places:
            if head.topic in into.later:
                return
            try:
                is_stored = await client.is_stored(head)
            except TernError as error:
                into.later.setdefault(head.topic, error)
                return
            if is_stored:
                into.sent.append(head.seq)
            else:
                unsent.append(head.seq)

    async with asyncio.TaskGroup() as tasks:
        for head in heads:
            tasks.create_task(look(head))
    return unsent
