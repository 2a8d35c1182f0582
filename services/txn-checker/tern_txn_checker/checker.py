"""The parts of the checker, put together once.

Links to broker groups, claimers, the dispatcher of calls, results, counters. Owner of all: the
event loop in which `start` was called. Nothing here outlives the process: attempts, claims,
answers and outcomes are in the logs of the broker groups, so any number of checkers may start and
stop.
"""

import asyncio
import random
import secrets
import ssl
from dataclasses import asdict
from typing import Any

from tern_routing import GroupLink
from tern_routing.name_servers import GroupRoutes, Routing
from tern_service.clock import Clock
from tern_txn_checker.broker_links import BrokerLinks
from tern_txn_checker.callback import Ask
from tern_txn_checker.claimer import Claimer, Claiming
from tern_txn_checker.core.circuit import CLOSED
from tern_txn_checker.core.schedule import Schedule
from tern_txn_checker.counters import Counters
from tern_txn_checker.dispatcher import Dispatcher
from tern_txn_checker.producer_groups import ProducerGroups
from tern_txn_checker.results import Result, Results
from tern_wire.checks.urls import CheckHosts

# Time for the calls under way at a stop. `ternmq down` stops brokers 2.5 s after the checkers.
STOP_GRACE_S = 2.0
# Maximum number of hosts in one status: those with open circuits first.
HOSTS_SHOWN_MAX = 100


class Checker:
    """All parts of one checker."""

    def __init__(
        self,
        *,
        routing: Routing[GroupRoutes],
        ask: Ask,
        cluster: str,
        cluster_key: bytes,
        hosts: CheckHosts,
        clock: Clock,
        name: str = "",
        claim_ms: int,
        wait_ms: int,
        route_interval_ms: int,
        calls_max: int,
        calls_per_host_max: int,
        held_max: int,
        broker_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name or f"txn-checker-{secrets.token_hex(4)}"
        self._clock, self._cluster_key, self._hosts, self._held_max = clock, cluster_key, hosts, held_max
        self._rng = random.Random()  # noqa: S311  spreads pauses, protects nothing
        self._claiming = Claiming(name=self.name, claim_ms=claim_ms, wait_ms=wait_ms, share=self._share)
        schedule = Schedule(calls_max=calls_max, per_host_max=calls_per_host_max, waiting_max=held_max)
        self.dispatcher = Dispatcher(schedule, ask, held_max=held_max, mono_ms=clock.mono_ms, rng=self._rng)
        self.links = BrokerLinks(
            routing,
            name=self.name,
            cluster=cluster,
            cluster_key=cluster_key,
            interval_ms=route_interval_ms,
            rng=self._rng,
            on_group=self._serve,
            tls=broker_tls,
        )
        self._claimers: list[Claimer] = []
        self._results: dict[str, Results] = {}
        self._is_stopping = False
        self.counters = Counters(
            {
                ("held_checks", "Checks that are claimed and not settled."): lambda: self.dispatcher.held,
                ("held_bytes", "Bytes of their questions."): lambda: self.dispatcher.held_bytes,
                ("waiting_checks", "Checks that wait for their call."): lambda: self.dispatcher.waiting,
                ("calls_under_way", "Calls that are being made."): lambda: self.dispatcher.under_way,
                ("hosts", "Hosts that were asked lately."): lambda: sum(1 for _ in self.dispatcher.hosts()),
                ("open_circuits", "Hosts that are left alone, or tried."): lambda: sum(
                    host.circuit != CLOSED for host in self.dispatcher.hosts()
                ),
            }
        )

    async def start(self) -> None:
        """Fetch the routes, then poll them; links dial and claims begin in the background."""
        await self.links.start()

    async def stop(self) -> None:
        """Stop claiming, let calls under way end, send their results, and close everything.

        Waiting checks are not reported: their claims end, and other checkers get the same attempts.
        """
        self._is_stopping = True
        self.dispatcher.close()
        await asyncio.gather(*(claimer.stop() for claimer in self._claimers))
        await self.dispatcher.finish(STOP_GRACE_S / 2)
        flushing = [asyncio.create_task(results.flush()) for results in self._results.values()]
        if flushing:
            await asyncio.wait(flushing, timeout=STOP_GRACE_S / 2)
        for task in flushing:
            task.cancel()
        for results in self._results.values():
            results.close()
        await self.links.stop()

    def _serve(self, link: GroupLink) -> None:
        """Start to claim from a new broker group.

        A checker without allowed hosts claims nothing: checks are for checkers that can make the
        calls.
        """
        if not self._hosts.entries:
            return

        def on_settled(result: Result, became: str) -> None:
            self.counters.count(result, became)
            self.dispatcher.settled(result)

        results = Results(link, on_settled=on_settled, mono_ms=self._clock.mono_ms, rng=self._rng)
        self._results[link.broker_group] = results
        self.dispatcher.open_for(link.broker_group, results.submit)
        claimer = Claimer(
            link,
            self.dispatcher,
            ProducerGroups(link, self._hosts, self._clock.mono_ms),
            claiming=self._claiming,
            cluster_key=self._cluster_key,
            clock=self._clock,
            rng=self._rng,
            on_claimed=self._count_claimed,
        )
        self._claimers.append(claimer)
        claimer.start()

    def _count_claimed(self, count: int) -> None:
        self.counters.claimed += count

    def _share(self) -> int:
        """The maximum size of one claim: each claimer's share of `Dispatcher.claims_max`."""
        return self.dispatcher.claims_max() // max(1, len(self._claimers))

    # Status ---------------------------------------------------------------------------------------
    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Ready: at least one broker group has a leader."""
        leaders = self.links.leaders()
        reasons = {"name_server": self.links.is_reachable, "leaders": leaders, "stopping": self._is_stopping}
        return any(leaders.values()) and not self._is_stopping, reasons

    def status(self) -> dict[str, Any]:
        """The current state, for people: hosts with open circuits first."""
        hosts = sorted(self.dispatcher.hosts(), key=lambda host: (host.circuit == CLOSED, -host.waiting, host.host))
        return {
            "checker": self.name,
            "leaders": self.links.leaders(),
            "claimed": self.counters.claimed,
            "held": self.dispatcher.held,
            "waiting": self.dispatcher.waiting,
            "under_way": self.dispatcher.under_way,
            "answers": dict(self.counters.answers),
            "settled": dict(self.counters.settled),
            "hosts_known": len(hosts),
            "hosts": [asdict(host) for host in hosts[:HOSTS_SHOWN_MAX]],
        }
