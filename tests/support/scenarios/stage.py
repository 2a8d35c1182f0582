"""What a scenario acts on: clients of one mesh, be it in memory or of real processes, and names of its own.

A scenario is a coroutine function that uses calls of the SDK alone and returns plain values. `@scenario(expected)` enters it into
SCENARIOS; `@cases(...)` enters one scenario for each row of a table.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tern_client import (
    Admin,
    Consumer,
    OutgoingMessage,
    Producer,
    PullConsumer,
    ReceivedMessage,
    TernError,
    TransactionProducer,
)

# Rounds of waiting of at least RECEIVE_WAIT_MS before something is given up that must come.
ROUNDS_MAX = 40
RECEIVE_WAIT_MS = 500
Play = Callable[["Stage"], Awaitable[Any]]
T = TypeVar("T")


class World(Protocol):
    """One mesh. Each call makes a client of it."""

    def producer(self, **options: Any) -> Producer: ...
    def consumer(self, topic: str, group: str, **options: Any) -> Consumer: ...
    def pull_consumer(self, topic: str, **options: Any) -> PullConsumer: ...
    def transaction_producer(self, producer_group: str, **options: Any) -> TransactionProducer: ...
    def admin(self) -> Admin: ...

    async def pass_time(self, ms: int) -> None:
        """Let *ms* pass for the mesh."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A *play* and the value that it returns on every mesh."""

    name: str
    play: Play
    expected: Any


SCENARIOS: dict[str, Scenario] = {}


def scenario(expected: Any) -> Callable[[Play], Play]:
    """Enter the decorated play under its name."""

    def enter(play: Play) -> Play:
        name = play.__name__
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        SCENARIOS[name] = Scenario(name, play, expected)
        return play

    return enter


def cases(rows: Mapping[str, tuple[Any, Any]]) -> Callable[[Callable[["Stage", Any], Awaitable[Any]]], Any]:
    """Enter the decorated play once for each of *rows*: what the case is called, its argument, and what it returns."""

    def enter(play: Callable[["Stage", Any], Awaitable[Any]]) -> Any:
        for case, (given, expected) in rows.items():

            def played(stage: "Stage", given: Any = given) -> Awaitable[Any]:
                return play(stage, given)

            name = f"{play.__name__}[{case}]"
            assert name not in SCENARIOS, f"two scenarios are called {name}"
            SCENARIOS[name] = Scenario(name, played, expected)
        return play

    return enter


class Stage:
    """Owner: one run of one scenario. *suffix* keeps its names apart from all others of the mesh."""

    def __init__(self, world: World, suffix: str) -> None:
        self.world = world
        self.topic, self.group, self.producer_group = f"orders-{suffix}", f"billing-{suffix}", f"shop-{suffix}"

    @contextlib.asynccontextmanager
    async def clients(self, *, queues: int = 1, **options: Any) -> AsyncIterator[tuple[Producer, Consumer]]:
        """A producer and a consumer of the topic, which has one queue unless said otherwise, and whose group begins at its start."""
        async with self.world.admin() as admin:
            await admin.create_topic(self.topic, queues=queues)
            await admin.create_group(self.group, start="earliest")
        async with self.world.producer() as producer, self.consumer(**options) as consumer:
            yield producer, consumer

    def consumer(self, group: str = "", **options: Any) -> Consumer:
        """A consumer of the topic."""
        return self.world.consumer(self.topic, group or self.group, wait_ms=RECEIVE_WAIT_MS, **options)

    async def settings(self, **options: Any) -> None:
        """Change the settings of the group."""
        async with self.world.admin() as admin:
            await admin.alter_group(self.group, **options)

    async def send(self, producer: Producer, *bodies: bytes, **fields: Any) -> None:
        """Send *bodies* one after the other."""
        for body in bodies:
            await producer.send_message(self.topic, OutgoingMessage(body=body, **fields))

    async def take(self, consumer: Consumer, count: int = 1) -> list[ReceivedMessage]:
        """*count* messages, which must come; more are a failure that the result shows."""
        found: list[ReceivedMessage] = []
        for _ in range(ROUNDS_MAX):
            found += await consumer.receive(wait_ms=0)
            if len(found) >= count:
                return found
            await self.world.pass_time(RECEIVE_WAIT_MS)
        raise AssertionError(f"{len(found)} of {count} messages came: {[message.body for message in found]}")

    async def none(self, consumer: Consumer) -> bool:
        """Whether there is no message now."""
        return not await consumer.receive(wait_ms=0)

    async def until(self, question: Callable[[], Awaitable[T]], wanted: T) -> T:
        """The answer once it is *wanted*, or the last one."""
        for _ in range(ROUNDS_MAX):
            if (answer := await question()) == wanted:
                break
            await self.world.pass_time(RECEIVE_WAIT_MS)
        return answer


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    """Their bodies."""
    return [message.body for message in messages]


async def code(call: Awaitable[object]) -> str:
    """The code of the error of *call*, "" if it succeeds."""
    try:
        await call
    except TernError as error:
        return error.code
    return ""


def codes(errors: Mapping[Any, TernError]) -> list[str]:
    """The codes of errors by handle or index."""
    return [error.code for error in errors.values()]
