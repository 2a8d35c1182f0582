"""Law: messages of one message group are stored in the order in which they were given to a producer, whatever becomes of its requests.

By seed: sends of all kinds at once against brokers that are slow, refuse, and hang up (tests/support/client/shaky_brokers.py).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tern_client import BatchOutcome, OutgoingMessage, Producer, RetryPolicy
from tern_client.calls.batching import BatchLimits, split
from tern_client.calls.turns import TurnNotReached
from tern_wire.errors import NoLeader, OutcomeUnknown, TernError
from tern_wire.limits import LANE_SIZE_MAX_BYTES
from tests.support.client.shaky_brokers import ShakyBrokers, cut_up, read_messages, refusal

SEEDS = range(60)
ENDPOINTS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
EAGER = RetryPolicy(first_delay_ms=0, max_delay_ms=0)
GROUPS = ("a", "b", "c", "d", "")


def producer_of(brokers: ShakyBrokers, **options: Any) -> Producer:
    """A producer that repeats at once, and sends what was gathered in the next turn of the loop."""
    limits = BatchLimits(linger_ms=0, messages_max=4)
    return Producer(ENDPOINTS, transport=brokers, **{"policy": EAGER, "limits": limits, **options})


class Course:
    """What was given to a producer, in which order; and what became of it. *size_bytes* makes every third body large."""

    def __init__(self, seed: int, size_bytes: int = 0) -> None:
        self.random = random.Random(f"course {seed}")
        self.given: dict[tuple[str, str], list[bytes]] = {}
        self.errors: dict[bytes, TernError] = {}
        self.count = 0
        self._size_bytes = size_bytes

    def message(self, topic: str) -> OutgoingMessage:
        """The next one, given now."""
        group = self.random.choice(GROUPS)
        self.count += 1
        body = b"%s-%d" % (group.encode(), self.count)
        if self._size_bytes and self.count % 3 == 0:
            body = body.ljust(self._size_bytes, b".")
        self.given.setdefault((topic, group), []).append(body)
        return OutgoingMessage(body=body, message_group=group)

    async def run(self, producer: Producer, calls: int) -> None:
        """Sends of all kinds, each begun before the one before it has ended."""
        tasks: list[asyncio.Task[None]] = []
        for _ in range(calls):
            topic, kind = self.random.choice(("t", "u")), self.random.randrange(6)
            messages = [self.message(topic) for _ in range(self.random.randint(2, 9) if kind == 0 else 1)]
            tasks.append(asyncio.create_task(self._send(producer, topic, messages, kind)))
            # It has been called; for some time nothing else is.
            for _ in range(self.random.choice((1, 1, 1, 5, 20))):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    async def _send(self, producer: Producer, topic: str, messages: list[OutgoingMessage], kind: int) -> None:
        first = messages[0]
        if kind == 0:
            outcome: BatchOutcome = await producer.send_batch(topic, messages, return_errors=True)
            self.errors |= {messages[at].body: error for at, error in outcome.errors.items()}
            return
        try:
            if kind == 1:
                await producer.send(topic, first.body, message_group=first.message_group)
            else:
                await (await producer.send_soon(topic, first))
        except TernError as error:
            self.errors[first.body] = error

    def check(self, brokers: ShakyBrokers) -> None:
        """Everything is stored once, in order, but for what has an error; and that leaves nothing but a gap."""
        for (topic, group), given in self.given.items():
            stored = brokers.stored.get((topic, group), [])
            assert len(set(stored)) == len(stored)
            known = [body for body in stored if body not in self.errors]
            expected = [body for body in given if body not in self.errors]
            if group:
                assert known == expected, f"{topic} {group}"
            else:
                assert sorted(known) == sorted(expected)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_message_group_keeps_its_order_whatever_fails(seed: int) -> None:
    """Leader changes, answers lost and late, requests that are stored in part, proxies that are away."""
    print(f"seed {seed}")
    brokers, course = ShakyBrokers(seed), Course(seed)
    async with producer_of(brokers) as producer:
        await course.run(producer, 60)
    assert not course.errors
    course.check(brokers)


@pytest.mark.parametrize("seed", range(12))
async def test_a_message_that_fails_for_good_leaves_a_gap_and_no_disorder(seed: int) -> None:
    """Those behind it are sent all the same."""
    print(f"seed {seed}")
    brokers, course = ShakyBrokers(seed, fatal_percent=15), Course(seed)
    async with producer_of(brokers) as producer:
        await course.run(producer, 60)
    assert course.errors
    course.check(brokers)


@pytest.mark.parametrize("seed", range(12))
async def test_sends_that_are_given_up_leave_gaps_and_no_disorder(seed: int) -> None:
    """The deadline is over after some attempts. What is stored late of those is behind nobody's receipt that matters; what had no turn is not stored."""
    print(f"seed {seed}")
    brokers, course = ShakyBrokers(seed, trouble_percent=85), Course(seed)
    async with producer_of(brokers, policy=RetryPolicy(first_delay_ms=0, max_delay_ms=0, deadline_ms=1)) as producer:
        await course.run(producer, 80)
    assert course.errors
    course.check(brokers)
    unsent = {body for body, error in course.errors.items() if isinstance(error, TurnNotReached)}
    assert not unsent & {body for queue in brokers.stored.values() for body in queue}


@pytest.mark.parametrize("seed", range(12))
async def test_a_full_buffer_takes_messages_in_the_order_of_their_calls(seed: int) -> None:
    """A small message does not pass a large one that waits for room."""
    print(f"seed {seed}")
    brokers, course = ShakyBrokers(seed), Course(seed, size_bytes=1_500)
    async with producer_of(brokers, buffer_size_max_bytes=2_000) as producer:
        await course.run(producer, 60)
    assert not course.errors
    course.check(brokers)


@pytest.mark.parametrize("seed", range(6))
async def test_a_large_batch_is_sent_so_that_no_piece_of_a_message_group_is_overtaken(seed: int) -> None:
    """A proxy passes on at most 1 MiB at a time to a broker group; a later piece may be stored when an earlier one is not."""
    print(f"seed {seed}")
    brokers = ShakyBrokers(seed, trouble_percent=70)
    bodies = [b"%02d" % at + b"x" * 300_000 for at in range(12)]
    async with producer_of(brokers) as producer:
        outcome = await producer.send_batch(
            "t", [OutgoingMessage(body=body, message_group="a") for body in bodies], return_errors=True
        )
    assert len(outcome.confirmed()) == 12
    assert brokers.stored["t", "a"] == bodies


def test_a_request_with_message_groups_is_one_piece_for_each_broker_group() -> None:
    """Or one message. With and without keys are not mixed: only the former are repeated when their outcome is unknown."""
    rng = random.Random(5)
    for _ in range(40):
        messages = [
            OutgoingMessage(
                body=b"x" * rng.choice((0, 10, 5_000, 400_000, 2_000_000)),
                message_group=rng.choice("ab"),
                tag=rng.choice(("", "tag", "\N{GRINNING FACE}" * 200)),
                idempotency_key=rng.choice(("", "", "k")),
            )
            for _ in range(rng.randrange(1, 60))
        ]
        parts = list(split("t", messages))
        assert [at for part in parts for at in part] == list(range(len(messages)))
        for part in parts:
            own = [messages[at] for at in part]
            text = sum(len(message.tag.encode()) + len(message.body) + 200 for message in own)
            assert len(own) == 1 or text <= LANE_SIZE_MAX_BYTES
            assert len({bool(message.idempotency_key) for message in own}) == 1
    assert len(list(split("t", [OutgoingMessage(body=b"x" * 400_000)] * 6))) == 1


async def test_what_has_no_message_group_waits_for_nobody() -> None:
    """Nor do other message groups: four requests are on the way while the first of one group is, and that group gathers."""
    gate = asyncio.Event()

    class Gated(ShakyBrokers):
        async def exchange(self, endpoint: str, request: Any, timeout_ms: float) -> Any:
            _, messages = read_messages(request)
            if messages[0].body == b"slow":
                await gate.wait()
            return await ShakyBrokers.exchange(self, endpoint, request, timeout_ms)

    brokers = Gated(0, trouble_percent=0)
    async with producer_of(brokers) as producer:
        slow = await producer.send_soon("t", OutgoingMessage(body=b"slow", message_group="a"))
        await until(lambda: producer._ordered_in_flight == 1)
        behind = [await producer.send_soon("t", OutgoingMessage(body=b"%d" % n, message_group="a")) for n in range(4)]
        others = [await producer.send_soon("t", OutgoingMessage(body=b"b", message_group="b")) for _ in range(4)]
        others += [await producer.send_soon("t", OutgoingMessage(body=b"free")) for _ in range(4)]
        await asyncio.gather(*others)
        await producer.send("t", b"single")
        assert not slow.done()
        assert not any(receipt.done() for receipt in behind)
        before = brokers.requests
        gate.set()
        await asyncio.gather(slow, *behind)
        assert brokers.requests == before + 2  # the slow one, and one batch of all that gathered behind it
    assert brokers.stored["t", "a"] == [b"slow", b"0", b"1", b"2", b"3"]


async def until(is_so: Callable[[], bool]) -> None:
    """Turns of the loop until it is so."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)


class Held(ShakyBrokers):
    """The first request waits until `go` is set; all are stored."""

    def __init__(self) -> None:
        ShakyBrokers.__init__(self, 0, trouble_percent=0, turns_max=1)
        self.go = asyncio.Event()

    async def exchange(self, endpoint: str, request: Any, timeout_ms: float) -> Any:
        """As ShakyBrokers."""
        self.requests += 1
        if self.requests == 1:
            await self.go.wait()
        return await self._answer(endpoint, request)


async def test_a_send_whose_caller_is_cancelled_goes_on_and_is_not_overtaken() -> None:
    """One on the way may be stored; one that waits for its turn is withdrawn, and what waits behind it still waits for the first."""
    brokers = Held()
    async with producer_of(brokers) as producer:
        calls = [asyncio.create_task(producer.send("t", b"%d" % n, message_group="a")) for n in range(4)]
        await until(lambda: brokers.requests == 1)
        for call in calls[:2]:
            call.cancel()
        await asyncio.gather(*calls[:2], return_exceptions=True)
        for _ in range(20):
            await asyncio.sleep(0)
        assert brokers.requests == 1
        brokers.go.set()
        await asyncio.gather(*calls[2:])
        assert len(producer._turns) == 0
    assert brokers.stored["t", "a"] == [b"0", b"2", b"3"]


async def test_a_single_send_takes_along_what_lingers_before_it() -> None:
    """And comes behind it, without waiting for the linger."""
    brokers = ShakyBrokers(0, trouble_percent=0)
    async with producer_of(brokers, limits=BatchLimits(linger_ms=60_000)) as producer:
        soon = [await producer.send_soon("t", OutgoingMessage(body=b"%d" % n, message_group="a")) for n in range(3)]
        async with asyncio.timeout(30):
            await producer.send("t", b"3", message_group="a")
        assert all(receipt.done() for receipt in soon)
    assert brokers.stored["t", "a"] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("is_outage", [True, False])
@pytest.mark.parametrize("call", ["send", "send_soon", "send_batch"])
async def test_who_waits_a_whole_deadline_behind_an_outage_is_not_sent(call: str, is_outage: bool) -> None:
    """An outage is not waited for once for each message that gathered behind it; and nothing of those was stored. A slow queue is no outage."""

    class Failing(Held):
        async def _answer(self, endpoint: str, request: Any) -> Any:
            _, messages = read_messages(request)
            if is_outage and messages[0].body == b"0":
                return refusal(NoLeader(broker_group="broker-a"))
            return await ShakyBrokers._answer(self, endpoint, request)

    brokers = Failing()
    policy = RetryPolicy(first_delay_ms=0, max_delay_ms=0, deadline_ms=50)
    async with producer_of(brokers, policy=policy) as producer:
        first = asyncio.create_task(producer.send("t", b"0", message_group="a"))
        await until(lambda: brokers.requests == 1)

        begun: list[bytes] = []

        async def send(body: bytes) -> object:
            message = OutgoingMessage(body=body, message_group="a")
            begun.append(body)
            if call == "send":
                return await producer.send_message("t", message)
            if call == "send_batch":
                return (await producer.send_batch("t", [message], return_errors=True)).confirmed()
            return await (await producer.send_soon("t", message))

        behind = [asyncio.create_task(send(body)) for body in (b"1", b"2", b"3")]
        await until(lambda: len(begun) == 3)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > began + 0.06)
        brokers.go.set()
        outcomes = await asyncio.gather(first, *behind, return_exceptions=True)
        if is_outage:
            assert [type(outcome) for outcome in outcomes] == [NoLeader, *[TurnNotReached] * 3]
        await producer.send("t", b"4", message_group="a")
    assert brokers.stored["t", "a"] == ([b"4"] if is_outage else [b"0", b"1", b"2", b"3", b"4"])


async def test_closing_sends_what_waits_for_its_turn() -> None:
    """It had been asked for before."""
    brokers = Held()
    producer = producer_of(brokers)
    calls: list[Awaitable[object]] = [asyncio.create_task(producer.send("t", b"0", message_group="a"))]
    await until(lambda: brokers.requests == 1)
    calls.append(await producer.send_soon("t", OutgoingMessage(body=b"1", message_group="a")))
    calls.append(asyncio.create_task(producer.send("t", b"2", message_group="a")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    brokers.go.set()
    await asyncio.gather(closing, *calls)
    assert brokers.stored["t", "a"] == [b"0", b"1", b"2"]


async def test_an_unknown_outcome_is_told_and_those_behind_it_are_sent() -> None:
    """Without a key nothing is repeated: the message may be stored, and the next ones do not fail for it."""

    class Lost(ShakyBrokers):
        async def exchange(self, endpoint: str, request: Any, timeout_ms: float) -> Any:
            self.requests += 1
            if self.requests == 1:
                raise OutcomeUnknown()
            return await self._answer(endpoint, request)

    brokers = Lost(0, trouble_percent=0)
    async with producer_of(brokers, idempotent=False) as producer:
        receipts = []
        for n in range(3):
            receipts.append(await producer.send_soon("t", OutgoingMessage(body=b"%d" % n, message_group="a")))
            await until(lambda n=n: brokers.requests > n)  # type: ignore[misc]
        with pytest.raises(OutcomeUnknown):
            await receipts[0]
        await asyncio.gather(*receipts[1:])
    assert brokers.stored["t", "a"] == [b"1", b"2"]
    assert cut_up([]) == []
