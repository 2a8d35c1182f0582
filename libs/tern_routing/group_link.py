"""One broker group seen from a proxy or a checker: a link to each of its nodes, who leads it, and requests that follow the leader.

Owner of links and of the belief about the leader: this object, in its event loop. The belief comes, soonest first, from a node's own
LEADERSHIP notice, from `not-leader` replies, from asking every node for its STATUS (while somebody waits for a leader, or the leader
is silent), and from routes; `leadership.py` says which word counts. A request that certainly did nothing is sent again to the new
leader; one whose outcome is open is sent again only if the caller said that repeating is safe.

How long a fail-over takes here, beyond the election: a dead leader's requests end with its connections, at once; a hanging one's when
the next leader's notice comes (attempts.py). Those that wait for a leader go on in that same turn of the loop, in their order.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tern_remoting import Frame, FrameTooLarge, Link, LinkBusy, LinkError
from tern_routing.attempts import Attempts
from tern_routing.leader_search import SEARCH_INTERVAL_S, LeaderSearch
from tern_routing.leadership import LeaderBelief
from tern_wire.errors import (
    LinkBodyMalformed,
    LinkReplyMalformed,
    NoLeader,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    TernError,
)
from tern_wire.limits import APPEND_DEADLINE_MS, LEADER_WAIT_MS
from tern_wire.link.heads import LinkRequest, R, head_parts, read_head
from tern_wire.link.requests import ERROR, READS, Parts, RequestCode, read_error
from tern_wire.link.status import Leadership, NodeStatus
from tern_wire.routing.route import BrokerGroupRoute

logger = logging.getLogger(__name__)

# Grows with every refusal of one request, up to a search's interval: nodes that point to each other must not be asked in a loop.
REFUSED_PAUSE_S = 0.01

# Reads that end at once, or as soon as the broker has room for their answers.
DUE_READS = READS - {RequestCode.NOTIFY, RequestCode.AWAIT_REPLY}
# At 500 pages a second they would wait for 8 s, which is longer than brokers let them wait: more would only be refused later.
READS_AT_A_TIME_MAX = 4_096


class GivenUp(LinkError):
    """The node that a request waits for was superseded; the request may or may not have been carried out."""


class Dialled(Protocol):
    """What keeps one node's link up."""

    def close(self) -> None:
        """Close the link and dial no more."""
        ...


OnUp = Callable[[Link], None]
OnDown = Callable[[Link, Exception | None], None]
OnNotice = Callable[[Link, Frame], None]
# (host, port, on_up, on_down, on_notice): keeps dialling and reports each link, and what brokers say on it unasked.
Dial = Callable[[str, int, OnUp, OnDown, OnNotice], Dialled]


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
        self._group_size = 1
        self._belief = LeaderBelief()
        # In order: flights that wait together go on in the order in which they were filled.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._search = LeaderSearch(
            links=self._links_up,
            serves=self._serves,
            in_vain=self._accept_reborn,
            is_over=lambda: self.has_leader,
            is_wanted=lambda: bool(self._waiters),
        )
        loop = asyncio.get_running_loop()
        self._attempts = Attempts(now=loop.time, call_at=loop.call_at, on_silence=self._search.ask_around)
        self._is_closed = False
        # Reads that wait for an answer that is due: for room at the broker, mostly.
        self.reading = 0

    # Nodes and their links --------------------------------------------------------------------------------------
    def update(self, route: BrokerGroupRoute, *, is_whole: bool = True) -> None:
        """Follow *route*: dial new nodes, forget removed ones, and believe its leader when its term is not older.

        *is_whole* False: the name server has just started, and nodes that it has not heard of yet stay.
        """
        for name, node in list(self._nodes.items()):
            if route.nodes[name].link != node.address if name in route.nodes else is_whole:
                self._drop(name)
        for name, place in route.nodes.items():
            if name not in self._nodes:
                self._add(name, place.link)
        self._group_size = max(route.group_size, len(route.nodes))
        if route.leader:
            self._serves(route.leader, route.term)

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
                self._belief.forget(name)

        def on_notice(link: Link, frame: Frame) -> None:
            if frame.code == Leadership.code and self._nodes.get(name) is node:
                self._told(name, link, frame)

        node.dialled = self._dial(host.strip("[]"), int(port), on_up, on_down, on_notice)

    def _drop(self, name: str) -> None:
        node = self._nodes.pop(name)
        self._belief.forget(name)
        self._attempts.forget(name)
        if node.dialled is not None:
            node.dialled.close()

    def close(self) -> None:
        """Close all links; requests in flight fail."""
        self._is_closed = True
        self._search.close()
        self._attempts.close()
        for name in list(self._nodes):
            self._drop(name)
        self._wake()

    # Who leads --------------------------------------------------------------------------------------------------
    @property
    def leader(self) -> str:
        """The name of the leading node, as far as is known; "" while it is not."""
        return self._belief.leader

    @property
    def term(self) -> int:
        """The newest term of which a leader was heard."""
        return self._belief.term

    @property
    def has_leader(self) -> bool:
        """Whether a leader is known and its link is up."""
        node = self._nodes.get(self._belief.leader)
        return node is not None and node.link is not None and not node.link.closed

    def _links_up(self) -> dict[str, Link]:
        return {name: node.link for name, node in self._nodes.items() if node.link is not None}

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Every node's link address and whether its link is up."""
        return {
            name: {"link": node.address, "connected": node.link is not None and not node.link.closed}
            for name, node in self._nodes.items()
        }

    def _told(self, name: str, link: Link, frame: Frame) -> None:
        """A LEADERSHIP notice. One under another node's name comes from a port that routes gave to the wrong node."""
        said, _ = read_head(Leadership, frame.body)
        if said.node != name:
            logger.warning("another node listens there", extra={"node": name, "found": said.node, "at": link.address})
        elif said.is_serving:
            self._serves(name, said.term)
        else:
            self._belief.resigns(name, said.term)

    def _serves(self, node: str, term: int) -> None:
        """*node* was heard to serve in *term*. If that is news, what waits goes on, and nothing waits for its predecessors."""
        is_newer = term > self._belief.term
        if node in self._nodes and self._belief.serves(node, term):
            if is_newer:
                self._attempts.supersede(node)
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
            leader = self._belief.leader
            node = self._nodes.get(leader)
            if node is not None and node.link is not None and not node.link.closed:
                return leader, node.link
            left_s = until - loop.time()
            if left_s <= 0 or self._is_closed:
                self._on_routing_error()
                raise NoLeader(broker_group=self.broker_group)
            waiter = loop.create_future()
            self._waiters[waiter] = None
            if self._search.start():
                self._on_routing_error()
            timer = loop.call_later(left_s, _resolve, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.pop(waiter, None)

    def _accept_reborn(self, statuses: dict[str, NodeStatus]) -> None:
        """A majority knows only terms older than ours, and one of them serves: the group was made anew, and so begin its terms.

        (A majority of the group that we knew would have our term on its disks.)
        """
        is_majority = 2 * len(statuses) > self._group_size
        if is_majority and max(status.term for status in statuses.values()) < self._belief.term:
            for name, status in statuses.items():
                if status.is_serving:
                    logger.warning("the broker group was made anew", extra={"broker_group": self.broker_group})
                    self._belief = LeaderBelief()
                    self._serves(name, status.term)

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """All that every linked node says of itself as of now, for people; {} of one that does not answer in time."""
        return await self._search.statuses()

    # Requests ---------------------------------------------------------------------------------------------------
    async def ask(
        self,
        request: LinkRequest[R],
        raw: Sequence[bytes | bytearray | memoryview] = (),
        *,
        is_repeatable: bool,
        deadline_ms: int = APPEND_DEADLINE_MS,
        is_prompt: bool = True,
    ) -> tuple[R, memoryview]:
        """The leader's reply to *request*, with *raw* behind it, and what is behind the reply. As `exchange`; LinkReplyMalformed when
        the reply is none of this request's, or the broker cannot read it."""
        try:
            body = await self.exchange(
                request.code,
                head_parts(request, raw),
                is_repeatable=is_repeatable,
                deadline_ms=deadline_ms,
                is_prompt=is_prompt,
            )
            return cast("tuple[R, memoryview]", read_head(request.reply, body))
        except LinkBodyMalformed as error:
            raise LinkReplyMalformed(**error.fields) from error

    async def exchange(
        self,
        code: RequestCode,
        parts: Parts,
        *,
        is_repeatable: bool,
        deadline_ms: int = APPEND_DEADLINE_MS,
        is_prompt: bool = True,
    ) -> bytes | memoryview:
        """The body of the leader's reply. *is_prompt* False: it may rightly take its time, such as a pull that waits.

        NoLeader, Overloaded and the broker's own errors: nothing was done. OutcomeUnknown: it may have been done, or
        (*is_repeatable*) every repeat up to the deadline failed too.
        """
        if not (is_prompt and code in DUE_READS):
            return await self._request(code, parts, is_repeatable, deadline_ms, is_prompt=is_prompt)
        if self.reading >= READS_AT_A_TIME_MAX:
            raise Overloaded(what=f"reads at a time from broker group '{self.broker_group}'")
        self.reading += 1
        try:
            return await self._request(code, parts, is_repeatable, deadline_ms, is_prompt=True)
        finally:
            self.reading -= 1

    async def _request(
        self, code: RequestCode, parts: Parts, is_repeatable: bool, deadline_ms: int, *, is_prompt: bool
    ) -> bytes | memoryview:
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
            try:
                # No shorter time for one attempt: a link loses nothing, so a repeat on the same one could only do the work twice.
                frame = await self._attempt(node, link, code, parts, left_s, is_prompt=is_prompt)
            except (LinkBusy, FrameTooLarge) as error:
                if is_open:
                    raise OutcomeUnknown() from error
                raise Overloaded(what=f"requests on their way to broker group '{self.broker_group}'") from error
            except LinkError as error:
                self._lost(node, link)
                if not is_repeatable or loop.time() >= deadline:
                    raise OutcomeUnknown() from error
                # The first one may have arrived, so from here only the deadline ends the search for its outcome.
                is_open, leader_until = True, deadline
                continue
            if frame.code != ERROR:
                return frame.body
            refusal = self._heed(read_error(frame.body), node, is_first=not refusals)
            if isinstance(refusal, OutcomeUnknown) and is_repeatable:
                is_open, leader_until = True, deadline
            elif not isinstance(refusal, NotLeader | NoLeader):
                # "Nothing was stored" is true of this attempt only.
                raise OutcomeUnknown() if is_open and refusal.status == 503 else refusal
            if loop.time() >= leader_until:
                raise OutcomeUnknown() if is_open else NoLeader(broker_group=self.broker_group)
            refusals += 1
            if refusals > 1:
                # No hint helped, or a new leader does not serve yet.
                await asyncio.sleep(min(refusals * REFUSED_PAUSE_S, SEARCH_INTERVAL_S))

    async def ask_at(self, node: str, request: LinkRequest[R], timeout_ms: int) -> tuple[R, memoryview]:
        """The reply of *node*, whether it leads or not. As `ask`; LinkError, or what the node has refused it with."""
        entry = self._nodes.get(node)
        if entry is None or entry.link is None or entry.link.closed:
            raise GivenUp(f"{node} is not linked")
        is_read = request.code in READS
        frame = await entry.link.request(
            request.code, head_parts(request), timeout_s=timeout_ms / 1_000, is_read=is_read
        )
        if frame.code == ERROR:
            raise read_error(frame.body)
        return cast("tuple[R, memoryview]", read_head(request.reply, frame.body))

    async def _attempt(
        self, node: str, link: Link, code: RequestCode, parts: Parts, timeout_s: float, *, is_prompt: bool
    ) -> Frame:
        """One try at *node*. As Link.request, and GivenUp when another node has taken over."""
        pending = link.begin(code, parts, timeout_s=timeout_s, is_read=code in READS)
        is_answered, is_prompt = False, is_prompt and code is not RequestCode.NOTIFY
        attempt = self._attempts.begin(
            node, lambda: pending.give_up(GivenUp(f"{node} was superseded")), is_prompt=is_prompt
        )
        try:
            frame = await pending.wait()
            is_answered = True
        finally:
            self._attempts.end(attempt, is_answered=is_answered)
        return frame

    def _lost(self, node: str, link: Link) -> None:
        """A request to *node* had no reply. If the link is gone, who leads must be asked; a link that is up says enough itself."""
        entry = self._nodes.get(node)
        if link.closed and entry is not None and entry.link in {None, link}:
            self._belief.forget(node)
        self._on_routing_error()

    def _heed(self, error: TernError, node: str, *, is_first: bool) -> TernError:
        """Learn from *node*'s refusal; what the broker could not explain is an open outcome."""
        if isinstance(error, NotLeader | NoLeader):
            hint = str(error.fields.get("leader", ""))
            # Only the first is followed: later ones may point in a circle, so the nodes are asked.
            self._belief.refused(node, hint if is_first and hint in self._nodes else "")
            self._on_routing_error()
        elif error.status >= 500 and not error.retryable:
            logger.error("a broker failed", extra={"node": node, "code": error.code, "detail": error.detail})
            return OutcomeUnknown()
        return error


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
