"""The cost of one blocked message group: 100,000 waiting messages beside others of their queue."""

import random
from collections.abc import AsyncIterator

from loadtest.bench.delivery.ordered import Order, declare_ordered, send_ordered
from loadtest.bench.delivery.sizes import STUCK_BATCH_MESSAGES, Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import HOST, OwnMesh
from loadtest.bench.receiving import GROUP, Receivers, check_committed
from loadtest.bench.sending import check_stored
from loadtest.bench.turns import compared, in_turns

# Messages received of the blocked message group at the end: they must continue where it stopped.
RELEASED_MESSAGES = 32


class Lane:
    """A topic with one queue, its sends and its receives, turn after turn. Owner: the bench."""

    def __init__(self, mesh: OwnMesh, topic: str, sizes: Sizes) -> None:
        self.mesh, self.topic = mesh, topic
        self._message_groups = range(sizes.message_groups)
        self._turn_numbers = max(1, sizes.others_messages // sizes.message_groups)
        # One turn does not count, but receives as much.
        self._numbers = range(self._turn_numbers * (sizes.rounds + 1))
        self.order = Order()
        self._receivers = Receivers(topic, look=self.order.look)
        self._wanted = 0
        declare_ordered(mesh, topic, 1)

    async def fill(self, rng: random.Random) -> int:
        """Send the messages of all turns; return the number of acknowledged ones."""
        return await send_ordered(self.mesh, self.topic, self._message_groups, self._numbers, rng)

    async def turn(self) -> float:
        """Receive and ack the next part; return messages a second."""
        self._wanted += self._turn_numbers * len(self._message_groups)
        drained = await self._receivers.drain(self.mesh.port, self._wanted)
        self._receivers.ack_the_rest(self.mesh)
        return drained.per_s

    def check(self, committed: int) -> None:
        """Raise BenchFailed unless the order and the totals are right.

        Every message of the others came, in order, and the group's committed offset is *committed*.
        """
        self.order.check(self._message_groups, len(self._numbers))
        check_committed(self.mesh, self.topic, GROUP, committed)


class Stuck:
    """A message group before all others in its queue.

    Its first message is received and not acked. Owner: the bench.
    """

    def __init__(self, lane: Lane, sizes: Sizes) -> None:
        self._lane, self._messages = lane, sizes.blocked_messages
        self._message_group = range(sizes.message_groups, sizes.message_groups + 1)
        self._holder = Receivers(lane.topic, look=lane.order.look, batch_messages=1)

    async def block(self, rng: random.Random) -> int:
        """Send the whole group and receive its first message; return the number acknowledged."""
        mesh = self._lane.mesh
        numbers = range(self._messages)
        sent = await send_ordered(mesh, self._lane.topic, self._message_group, numbers, rng, STUCK_BATCH_MESSAGES)
        connection = await HttpConnection.open(HOST, mesh.port)
        await self._holder.step()(connection)
        connection.close()
        self._lane.order.blocked = self._message_group[0]
        return sent

    async def release(self) -> int:
        """Ack the first and receive some waiting messages, in order; return the number of acks."""
        mesh = self._lane.mesh
        self._holder.ack_the_rest(mesh)
        self._lane.order.blocked = -1
        behind = Receivers(self._lane.topic, look=self._lane.order.look)
        await behind.drain(mesh.port, RELEASED_MESSAGES)
        behind.ack_the_rest(mesh)
        return self._holder.acked + behind.acked


async def bench_blocked(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield blocked_group: other messages beside as many in a queue without a blocked group.

    The two take turns. In the turn that does not count, the leader scans all waiting messages,
    which happens once.
    """
    free, blocked = Lane(mesh, "free", sizes), Lane(mesh, "blocked", sizes)
    sent = await free.fill(rng)
    check_stored(mesh, free.topic, sent)
    stuck = Stuck(blocked, sizes)
    check_stored(mesh, blocked.topic, await stuck.block(rng) + await blocked.fill(rng))
    ours, plain = await in_turns(sizes.rounds, blocked.turn, free.turn)
    free.check(sent)
    blocked.check(0)
    check_committed(mesh, blocked.topic, GROUP, await stuck.release())
    yield compared("blocked_group", ours, plain, waiting=sizes.blocked_messages, message_groups=sizes.message_groups)
