"""One run of a mesh in memory whose topics come to be and move while they are sent: who does what, as a seed chooses.

Clients send keys, message groups and transactions through two proxies, and repeat them; an operator moves topics and breaks moves off; a consumer
reads in order; broker groups are down, name servers start anew and know a part, or are behind; proxies die between any two steps.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.routes.topics import topic_places
from tern_wire.errors import TernError
from tests.support.proxy.placed_brokers import PlacedBroker, Told
from tests.support.proxy.placed_mesh import START_MS, PlacedMesh, now_ms, pass_time, placed_mesh, run_virtually

NAMES = ("broker-a", "broker-b", "broker-c")
DURATION_S = 3_000.0
CLIENTS = 6


class Story:
    """One run. What each actor does next, it draws from a generator of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.told = Told()
        self.mesh: PlacedMesh
        self.moves = self.refused = self.ended = 0

    def rng(self, what: str) -> random.Random:
        """For *what* alone."""
        return random.Random(f"{what} of {self.seed}")

    async def run(self) -> None:
        """Everything, until its time is over."""
        brokers = {name: PlacedBroker(name, self.told, now_ms) for name in NAMES}
        async with placed_mesh(self.rng("network"), brokers) as self.mesh:
            actors = [self._client(number) for number in range(CLIENTS)]
            actors += [self._operator(), self._consumer(), self._weather()]
            tasks = [asyncio.create_task(each) for each in actors]
            done: set[asyncio.Task[None]] = set()
            while not self.told.faults and not done and now_ms() < START_MS + DURATION_S * 1_000:
                done, _ = await asyncio.wait(tasks, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in done:
                task.result()

    def proxy(self, rng: random.Random) -> Any:
        """Any of them."""
        return rng.choice(self.mesh.proxies)

    # Actors ---------------------------------------------------------------------------------------------------
    async def _client(self, number: int) -> None:
        """Sends one after the other; what was refused or lost comes again at once, what was stored sometimes later."""
        rng = self.rng(f"client {number}")
        sent: list[Callable[[], Any]] = []
        count = 0
        while True:
            await pass_time(rng.choice((0.0, 0.05, 1.0, 60.0)))
            if sent and rng.random() < 0.35:
                await self.proxy(rng).attempt(rng.choice(sent[-40:])())
                continue
            count += 1
            await self._send_one(rng, f"{number}.{count}", sent)

    async def _send_one(self, rng: random.Random, name: str, sent: list[Callable[[], Any]]) -> None:
        kind = rng.choice(("key", "key", "group", "group", "keyed group", "transaction", "several"))
        topics = ("t",) if kind != "several" else ("t", "u")
        message_group = f"m{name.partition('.')[0]}-{rng.randrange(3)}" if "group" in kind else ""
        key = name if kind != "group" else ""
        body = f"{message_group} {name.partition('.')[2]}".encode()

        def ask(proxy: Any) -> Any:
            if kind in {"transaction", "several"}:
                return proxy.begin(topics, key)
            return proxy.send("t", PackedMessage(body=body, idempotency_key=key, message_group=message_group))

        until = asyncio.get_running_loop().time() + 300.0
        while asyncio.get_running_loop().time() < until:
            proxy = self.proxy(rng)
            outcome = await proxy.attempt(ask(proxy))
            if outcome is None and not key:
                return  # nobody knows whether it is stored
            if outcome is not None and not isinstance(outcome, TernError):
                if message_group:
                    self.told.receipt((message_group, int(name.partition(".")[2])))
                if key:
                    sent.append(lambda: ask(self.proxy(rng)))
                return
            if outcome is not None and not outcome.retryable:
                assert outcome.code in {"topics-apart"}, outcome
                return
            self.refused += outcome is not None
            await pass_time(rng.uniform(0.5, 20.0))

    async def _operator(self) -> None:
        """Moves topics, asks for the end of moves, and breaks some off."""
        rng = self.rng("operator")
        wanted: dict[str, tuple[str, ...]] = dict.fromkeys(("t", "u"), NAMES)
        while True:
            await pass_time(rng.choice((1.0, 30.0, 60.0, 150.0)))
            topic = rng.choice(("t", "t", "u"))
            if rng.random() < 0.15:
                wanted[topic] = tuple(sorted(rng.sample(NAMES, rng.randint(1, 3))))
            proxy = self.proxy(rng)
            outcome = await proxy.attempt(topic_places.place_topic(proxy, topic, wanted[topic]))
            if isinstance(outcome, tuple):
                self.moves += outcome[0]
                self.ended += not outcome[0] and not outcome[1]

    async def _consumer(self) -> None:
        """Reads everywhere, and then for long nothing: message groups are held where they are, until a move could have ended."""
        rng = self.rng("consumer")
        while True:
            reads_until = asyncio.get_running_loop().time() + rng.uniform(100.0, 500.0)
            while asyncio.get_running_loop().time() < reads_until:
                await pass_time(rng.choice((0.2, 2.0, 4.0)))
                for name in rng.sample(NAMES, len(NAMES)):
                    self.mesh.brokers[name].consume(rng)
            await pass_time(rng.choice((30.0, 500.0, 800.0)))

    async def _weather(self) -> None:
        """Broker groups are down, name servers start anew or are behind, proxies die."""
        rng = self.rng("weather")
        while True:
            await pass_time(rng.choice((0.02, 0.3, 10.0, 60.0, 120.0)))
            number, a_while_s = rng.randrange(2), rng.choice((0.5, 5.0, 40.0))
            view = self.mesh.proxies[number].view
            match rng.randrange(5):
                case 0:
                    broker = self.mesh.brokers[rng.choice(NAMES)]
                    broker.is_down = True
                    await pass_time(a_while_s)
                    broker.is_down = False
                case 1:
                    await self.mesh.restart(number)
                case 2:
                    view.age_s = rng.choice((0.01, 5.0, 300.0))
                    await pass_time(a_while_s)
                    view.age_s = 0.0
                case _:
                    # It has started, and not everybody has registered yet. The proxy may have started with it.
                    view.hidden, view.is_warm = frozenset(rng.sample(NAMES, rng.randint(1, 2))), False
                    if rng.random() < 0.7:
                        await self.mesh.restart(number)
                    await pass_time(a_while_s)
                    view.hidden, view.is_warm = frozenset(), True


def run(seed: int) -> Story:
    """The whole story of *seed*."""
    story = Story(seed)
    run_virtually(story.run)
    return story
