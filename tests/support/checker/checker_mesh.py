"""A checker in this process, between brokers in memory and scripted producers, on real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tern_routing.name_servers import GroupRoutes
from tern_service.clock import SystemClock
from tern_txn_checker.callback import Callbacks
from tern_txn_checker.checker import Checker
from tern_txn_checker.core.answers import Answer
from tern_txn_checker.core.schedule import Check
from tern_txn_checker.host_resolver import Resolver
from tern_wire.checks.urls import CheckHosts
from tern_wire.errors import NoNameServer
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute
from tests.support.checker.checked_broker import CheckedBroker
from tests.support.checker.scripted_producer import Behaviour, ScriptedProducer

KEY = bytes(range(32))
LOOPBACK = "127.0.0.1,localhost,[::1]"


class ScriptedRouting:
    """Routes made from brokers as they are now. `is_up` False: nobody answers."""

    endpoints = "http://127.0.0.1:9876"

    def __init__(self, brokers: tuple[CheckedBroker, ...]) -> None:
        self.brokers, self.is_up = brokers, True

    async def fetch(self) -> tuple[bytes, GroupRoutes]:
        """The routes of now, without a mark that means anything."""
        if not self.is_up:
            raise NoNameServer(endpoints=self.endpoints)
        groups: dict[str, BrokerGroupRoute] = {}
        for broker in self.brokers:
            old = groups.get(broker.broker_group)
            nodes = dict(old.nodes) if old else {}
            nodes[broker.node] = NodeRoute(link=f"127.0.0.1:{broker.server.port}", http="127.0.0.1:1")
            leader, term = (broker.node, broker.term) if broker.leads else (old.leader, old.term) if old else ("", 0)
            groups[broker.broker_group] = BrokerGroupRoute(nodes=nodes, leader=leader, term=term)
        return b"", GroupRoutes(warm=True, broker_groups=groups)


@contextlib.asynccontextmanager
async def checking(
    *brokers: CheckedBroker, hosts: str = LOOPBACK, look_up: Callable[[str], list[str]] | None = None, **settings: Any
) -> AsyncIterator[Checker]:
    """A running checker in front of *brokers*, which must have been started."""
    clock, allowed = SystemClock(), CheckHosts.parse(hosts)
    callbacks = Callbacks(hosts=allowed, resolver=Resolver(look_up), clock=clock, ca_file=settings.pop("ca_file", None))
    shape = {"claim_ms": 10_000, "wait_ms": 5_000, "route_interval_ms": 1_000, "calls_max": 64}
    checker = Checker(
        routing=ScriptedRouting(brokers),
        ask=settings.pop("ask", callbacks.ask),
        cluster="test",
        cluster_key=KEY,
        hosts=allowed,
        clock=clock,
        **{**shape, "calls_per_host_max": 4, "held_max": 1_024, **settings},
    )
    await checker.start()
    try:
        yield checker
    finally:
        await checker.stop()
        callbacks.close()


@contextlib.asynccontextmanager
async def world(*behaviours: Behaviour, broker: CheckedBroker | None = None) -> AsyncIterator[tuple[Any, ...]]:
    """A broker, and a producer for each of *behaviours*, which producer groups `pg0`, `pg1`, ... are asked at."""
    async with contextlib.AsyncExitStack() as stack:
        made = broker or CheckedBroker(KEY)
        await made.start()
        stack.push_async_callback(made.stop)
        producers = []
        for number, behaviour in enumerate(behaviours):
            producer = await ScriptedProducer(behaviour).start()
            stack.push_async_callback(producer.stop)
            made.add_group(f"pg{number}", producer.url)
            producers.append(producer)
        yield made, *producers


async def hanging(_: Check, __: int) -> Answer:
    """A call that does not end."""
    await asyncio.Event().wait()
    return Answer("never")
