"""One broker group seen from a proxy: a link to each of its nodes, who leads it, and requests that follow the leader.

Owner of links and of the belief about the leader: this object, in its event loop. The belief comes from routes, from
`not-leader` replies and, when neither helps, from asking every node for its STATUS. A request that certainly did nothing is sent
again to the new leader; one whose outcome is open is sent again only if the caller said that repeating is safe.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tern_remoting import Frame, FrameTooLarge, Link, LinkBusy, LinkError
from tern_wire.errors import BrokerBusy, NoLeader, NotLeader, OutcomeUnknown, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, LEADER_WAIT_MS
from tern_wire.requests import ERROR, Parts, RequestCode, body_parts, read_body, read_error
from tern_wire.route import BrokerGroupRoute

logger = logging.getLogger(__name__)

# A healthy node answers STATUS at once; one that does not is no leader worth waiting for.
STATUS_TIMEOUT_S = 0.3
# Between two rounds of asking all nodes: an election takes a few hundred milliseconds.
SEARCH_INTERVAL_S = 0.05
# One attempt of a request that may be repeated: longer than a synced append takes on a busy disk.
ATTEMPT_S = 2.0
# Grows with every refusal of one request, up to the interval above.
REFUSED_PAUSE_S = 0.01


class Dialled(Protocol):
    """What keeps one node's link up."""

    def close(self) -> None:
        """Close the link and dial no more."""
        ...


OnUp = Callable[[Link], None]
OnDown = Callable[[Link, Exception | None], None]
# (host, port, on_up, on_down): keeps dialling and reports each link.
Dial = Callable[[str, int, OnUp, OnDown], Dialled]


@dataclass(slots=True)
class _Node:
    """One broker node: where its link port is, its dialler, and its link while it is up."""

    address: str
    dialled: Dialled | None = None
    link: Link | None = None


class GroupLink:
    """Requests to one broker group. All methods belong to one event loop."""

    def __init__(
        self,
        broker_group: str,
        dial: Dial,
        *,
        leader_wait_ms: int = LEADER_WAIT_MS,
        on_routing_error: Callable[[], None] = lambda: None,
    ) -> None:
        self.broker_group = broker_group
        self._dial = dial
        self._leader_wait_s = leader_wait_ms / 1_000
        self._on_routing_error = on_routing_error
        self._nodes: dict[str, _Node] = {}
        self._leader = ""
        self._term = 0
        # In order: flights that wait together go on in the order in which they were filled.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._search: asyncio.Task[None] | None = None
        self._is_closed = False

    # Nodes and their links --------------------------------------------------------------------------------------
    def update(self, route: BrokerGroupRoute) -> None:
        """Follow *route*: dial new nodes, forget removed ones, and believe its leader when its term is not older."""
        for name in [name for name, node in self._nodes.items() if self._address(route, name) != node.address]:
            self._drop(name)
        for name, place in route.nodes.items():
            if name not in self._nodes:
                self._add(name, place.link)
        if route.leader in self._nodes and (route.term > self._term or (route.term == self._term and not self._leader)):
            self._believe(route.leader, route.term)

    @staticmethod
    def _address(route: BrokerGroupRoute, name: str) -> str:
        place = route.nodes.get(name)
        return "" if place is None else place.link

    def _add(self, name: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            logger.warning("a node's link address is unreadable", extra={"node": name, "address": address})
            return
        node = self._nodes[name] = _Node(address)

        def on_up(link: Link) -> None:
            node.link = link
            self._wake()

        def on_down(link: Link, _: Exception | None) -> None:
            if node.link is link:
                node.link = None
                if self._leader == name:
                    self._leader = ""

        node.dialled = self._dial(host.strip("[]"), int(port), on_up, on_down)

    def _drop(self, name: str) -> None:
        node = self._nodes.pop(name)
        if self._leader == name:
            self._leader = ""
        if node.dialled is not None:
            node.dialled.close()

    def close(self) -> None:
        """Close all links; requests in flight fail."""
        self._is_closed = True
        if self._search is not None:
            self._search.cancel()
        for name in list(self._nodes):
            self._drop(name)
        self._wake()

    # Who leads --------------------------------------------------------------------------------------------------
    @property
    def leader(self) -> str:
        """The name of the leading node, as far as is known; "" while it is not."""
        return self._leader

    @property
    def term(self) -> int:
        """The term that the belief about the leader is from."""
        return self._term

    @property
    def has_leader(self) -> bool:
        """Whether a leader is known and its link is up."""
        node = self._nodes.get(self._leader)
        return node is not None and node.link is not None and not node.link.closed

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Every node's link address and whether its link is up."""
        return {
            name: {"link": node.address, "connected": node.link is not None and not node.link.closed}
            for name, node in self._nodes.items()
        }

    def _believe(self, leader: str, term: int) -> None:
        self._leader, self._term = leader, max(term, self._term)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def find_leader(self, until: float) -> tuple[str, Link]:
        """The leading node and its link; NoLeader when there is none at *until* (loop time)."""
        loop = asyncio.get_running_loop()
        while True:
            node = self._nodes.get(self._leader)
            if node is not None and node.link is not None and not node.link.closed:
                return self._leader, node.link
            left_s = until - loop.time()
            if left_s <= 0 or self._is_closed:
                self._on_routing_error()
                raise NoLeader(broker_group=self.broker_group)
            waiter = loop.create_future()
            self._waiters[waiter] = None
            if self._search is None or self._search.done():
                self._on_routing_error()
                self._search = asyncio.create_task(self._search_leader())
            timer = loop.call_later(left_s, _resolve, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.pop(waiter, None)

    async def _search_leader(self) -> None:
        """Ask all nodes again and again, as long as somebody waits (looked at after a pause: a woken waiter may wait again)."""
        while True:
            links = [(name, node.link) for name, node in self._nodes.items() if node.link is not None]
            answers = await asyncio.gather(*(self._ask_status(link) for _, link in links))
            found = [
                (int(answer.get("term", 0)), name)
                for (name, _), answer in zip(links, answers, strict=True)
                if answer.get("role") == "leader" and answer.get("serving", True) and name in self._nodes
            ]
            if found:
                term, leader = max(found)
                self._believe(leader, term)
            if self.has_leader:
                return
            await asyncio.sleep(SEARCH_INTERVAL_S)
            if not self._waiters:
                return

    @staticmethod
    async def _ask_status(link: Link) -> dict[str, Any]:
        try:
            frame = await link.request(RequestCode.STATUS, body_parts({}), timeout_s=STATUS_TIMEOUT_S)
            return read_body(frame.body)[0] if frame.code != ERROR else {}
        except (LinkError, TernError):
            return {}

    # Requests ---------------------------------------------------------------------------------------------------
    async def request(
        self,
        code: RequestCode,
        parts: Parts,
        *,
        is_repeatable: bool,
        deadline_ms: int = APPEND_DEADLINE_MS,
    ) -> tuple[dict[str, Any], memoryview]:
        """Head and raw bytes of the leader's reply.

        NoLeader, BrokerBusy and the broker's own errors: nothing was done. OutcomeUnknown: it may have been done, or
        (*is_repeatable*) every repeat up to the deadline failed too.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + deadline_ms / 1_000
        leader_until = min(deadline, began + self._leader_wait_s)
        refusals, is_open = 0, False
        while True:
            try:
                node, link = await self.find_leader(leader_until)
            except NoLeader as error:
                if is_open:
                    raise OutcomeUnknown() from error
                raise
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise OutcomeUnknown() if is_open else NoLeader(broker_group=self.broker_group)
            # A leader that hangs must not use up the time of a request that its successor could answer.
            attempt_s = min(left_s, ATTEMPT_S) if is_repeatable and deadline_ms <= APPEND_DEADLINE_MS else left_s
            try:
                frame: Frame = await link.request(code, parts, timeout_s=attempt_s)
            except (LinkBusy, FrameTooLarge) as error:
                raise BrokerBusy(broker_group=self.broker_group) from error
            except LinkError as error:
                self._lost(node, link)
                if not is_repeatable or loop.time() >= deadline:
                    raise OutcomeUnknown() from error
                # The first one may have arrived, so from here only the deadline ends the search for its outcome.
                is_open, leader_until = True, deadline
                continue
            if frame.code != ERROR:
                return read_body(frame.body)
            refusal = self._heed(read_error(frame.body), node)
            if isinstance(refusal, OutcomeUnknown) and is_repeatable:
                is_open, leader_until = True, deadline
            elif not isinstance(refusal, NotLeader | NoLeader):
                # "Nothing was stored" is true of this attempt only.
                raise OutcomeUnknown() if is_open and refusal.status == 503 else refusal
            if loop.time() >= leader_until:
                raise OutcomeUnknown() if is_open else NoLeader(broker_group=self.broker_group)
            refusals += 1
            if refusals > 1:
                # Hints point in a circle, or a new leader does not serve yet.
                self._leader = ""
                await asyncio.sleep(min(refusals * REFUSED_PAUSE_S, SEARCH_INTERVAL_S))

    def _lost(self, node: str, link: Link) -> None:
        """A request to *node* had no reply: it may lead no longer."""
        if self._leader == node and (entry := self._nodes.get(node)) is not None and entry.link in {None, link}:
            self._leader = ""
        self._on_routing_error()

    def _heed(self, error: TernError, node: str) -> TernError:
        """Learn from *node*'s refusal; what the broker could not explain is an open outcome."""
        if isinstance(error, NotLeader | NoLeader):
            if self._leader == node:
                hint = str(error.fields.get("leader", ""))
                self._leader = hint if hint in self._nodes and hint != node else ""
            self._on_routing_error()
        elif error.status >= 500 and not error.retryable:
            logger.error("a broker failed", extra={"node": node, "code": error.code, "detail": error.detail})
            return OutcomeUnknown()
        return error


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
