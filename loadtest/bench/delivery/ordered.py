"""The figure of order: messages of 1,000 message groups received and acked.

Also the sends and checks of such messages. Every body has its message group and its number in it.
The messages are sent in that order, over one connection for each message group, and checked on
receipt: a message that is not the next one of its message group ends the bench.
"""

import random
import struct
from collections.abc import AsyncIterator, Iterable, Iterator

from loadtest.bench.closed_loop import BenchFailed, Prepared, Step, prepare, run_to_end
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.receiving import BATCH_MESSAGES, CONNECTIONS, GROUP, Message, Receivers
from loadtest.bench.sending import BODY_SIZE_BYTES, check_stored, send_batches
from tern_wire import paths
from tern_wire.link.codec import encode_msgpack

SENDERS = 4
# Message group and number in it, before the filler of the body.
_PLACE = struct.Struct(">II")
_QUEUES = 8


class Order:
    """The progress of each message group. Owner: the bench; receivers pass every batch to it."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        # Its first message is leased: no other message of it may come.
        self.blocked = -1

    def look(self, messages: Iterable[Message]) -> None:
        """Raise BenchFailed unless each message is the next one of its message group."""
        for message in messages:
            message_group, number = _PLACE.unpack_from(message.body)
            expected = self._next.get(message_group, 0)
            if number != expected:
                raise BenchFailed(f"message group {message_group}: number {number} came when {expected} was due")
            if message_group == self.blocked:
                raise BenchFailed(f"number {number} came of a message group whose earlier message is not acked")
            self._next[message_group] = expected + 1

    def check(self, message_groups: Iterable[int], messages: int) -> None:
        """Raise BenchFailed unless *messages* of each message group have come."""
        short = {name: self._next.get(name, 0) for name in message_groups if self._next.get(name, 0) != messages}
        if short:
            raise BenchFailed(
                f"{len(short)} message groups are not complete ({messages} each): {list(short.items())[:3]}"
            )


def ordered_batches(
    topic: str, message_groups: range, numbers: range, numbers_each: int, rng: random.Random
) -> Iterator[Prepared]:
    """Yield batches with *numbers_each* of the *numbers* of every message group.

    *numbers* has a multiple of *numbers_each*.
    """
    filler = rng.randbytes(BODY_SIZE_BYTES - _PLACE.size)
    headers = {"Content-Type": paths.MSGPACK, "Accept": paths.MSGPACK}
    for first in range(0, len(numbers), numbers_each):
        messages = [
            {"body": _PLACE.pack(message_group, number) + filler, "message_group": f"customer-{message_group}"}
            for number in numbers[first : first + numbers_each]
            for message_group in message_groups
        ]
        yield prepare("POST", paths.batch_path(topic), encode_msgpack({"messages": messages}), headers)


async def send_ordered(
    mesh: OwnMesh, topic: str, message_groups: range, numbers: range, rng: random.Random, numbers_each: int = 1
) -> int:
    """Send the messages over several connections; return the number of acknowledged ones.

    Each message group uses one connection.
    """
    shares = [message_groups[first::SENDERS] for first in range(min(SENDERS, len(message_groups)))]
    waiting = [
        send_batches(ordered_batches(topic, share, numbers, numbers_each, rng), numbers_each * len(share))
        for share in shares
    ]
    steps: dict[HttpConnection, Step] = {}

    async def step(connection: HttpConnection) -> int | None:
        if connection not in steps:
            steps[connection] = waiting.pop()
        return await steps[connection](connection)

    return (await run_to_end(mesh.port, len(shares), step)).total


def declare_ordered(mesh: OwnMesh, topic: str, queues: int) -> None:
    """Declare a FIFO topic and its ordered group."""
    mesh.ask("PUT", paths.topic_path(topic), {"queues": queues, "type": "FIFO"})
    # Longer than any run: a lease that ends would cause a second delivery.
    mesh.ask("PUT", paths.group_path(GROUP), {"fifo": True, "invisible": "2h"})


async def bench_fifo(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield fifo_1000: all messages of a FIFO topic, received in batches of 32 over 8 connections.

    Each batch is acked with the next receive.
    """
    topic, message_groups = "ordered", range(sizes.message_groups)
    declare_ordered(mesh, topic, _QUEUES)
    each = sizes.fifo_messages // sizes.message_groups
    stored = await send_ordered(mesh, topic, message_groups, range(each), rng)
    check_stored(mesh, topic, stored)
    order = Order()
    receivers = Receivers(topic, look=order.look)
    drained = await receivers.drain(mesh.port, stored)
    receivers.ack_the_rest(mesh)
    receivers.check_committed(mesh)
    order.check(message_groups, each)
    more = {
        "messages": stored,
        "message_groups": sizes.message_groups,
        "connections": CONNECTIONS,
        "batch": BATCH_MESSAGES,
    }
    yield Figure(bench="delivery", figure="fifo_1000", value=drained.per_s, unit="msg/s", more=more)
