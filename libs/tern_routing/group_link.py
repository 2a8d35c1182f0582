"""One broker group seen from a proxy or a checker: links, its leader, requests to the leader. Owner
of links and of the belief about the leader: this object, in its event loop. The belief comes,
soonest first, from a node's LEADERSHIP notice, from `not-leader` replies, from STATUS of every node
(while requests wait for a leader, or the leader is silent), and from routes (`leadership.py`). A
request that did nothing is sent again to the new leader; one with an open outcome only if repeating
is safe. After a fail-over, requests at a dead leader end at once with its connections, those at a
hanging one with the next leader's notice (attempts.py); waiting requests then continue in order.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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

# Grows with each refusal up to a search's interval: nodes that name each other must not loop.
REFUSED_PAUSE_S = 0.01

# Reads that end at once, or as soon as the broker has room for their replies.
DUE_READS = READS - {RequestCode.NOTIFY, RequestCode.AWAIT_REPLY}
# At 500 pages a second they would wait 8 s, longer than brokers allow.
READS_AT_A_TIME_MAX = 4_096


class GivenUp(LinkError):
    """The node of a request was superseded; the request may or may not have been carried out."""


class Dialled(Protocol):
    """The keeper of one node's link."""

    def close(self) -> None:
        """Close the link and stop dialling."""
        ...


OnUp = Callable[[Link], None]
OnDown = Callable[[Link, Exception | None], None]
OnNotice = Callable[[Link, Frame], None]
# (host, port, on_up, on_down, on_notice): keeps dialling, reports links and notices.
Dial = Callable[[str, int, OnUp, OnDown, OnNotice], Dialled]
# Parts of a request -> the same with more fields in the head.
Addition = Callable[[Parts], Parts]


@dataclass(slots=True)
class _Node:
    """One broker node: address of its link port, its dialler, and its link while it is up."""

    address: str
    dialled: Dialled | None = None
    link: Link | None = None


class GroupLink:
    """Requests to one broker group. All methods belong to one event loop.
    *additions*: by request code, what adds fields to a head before it is sent.
    """

    def __init__(
        self,
        broker_group: str,
        dial: Dial,
        *,
        leader_wait_ms: int = LEADER_WAIT_MS,
        on_routing_error: Callable[[], None] = lambda: None,
        additions: Mapping[RequestCode, Addition] | None = None,
    ) -> None:
        self.broker_group = broker_group
        self._dial = dial
        self._leader_wait_s = leader_wait_ms / 1_000
        self._on_routing_error = on_routing_error
        self._additions = additions or {}
        self._nodes: dict[str, _Node] = {}
        self._group_size = 1
        self._belief = LeaderBelief()
        # In order: flights that wait together continue in the order of their filling.
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
        # Reads whose reply is due; mostly they wait for room at the broker.
        self.reading = 0

    # Nodes and their links ------------------------------------------------------------------------
    def update(self, route: BrokerGroupRoute, *, is_whole: bool = True) -> None:
        """Follow *route*: dial new nodes, drop removed ones, accept its leader unless outdated.
        *is_whole* False: the name server has just started; nodes that it does not know yet stay.
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

    # Leader ---------------------------------------------------------------------------------------
    @property
    def leader(self) -> str:
        """The leading node as far as known, else ""."""
        return self._belief.leader

    @property
    def term(self) -> int:
        """The newest term with a known leader."""
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
        """Handle a LEADERSHIP notice. Another node's name means that routes gave a wrong port."""
        said, _ = read_head(Leadership, frame.body)
        if said.node != name:
            logger.warning("another node listens here", extra={"node": name, "found": said.node, "at": link.address})
        elif said.is_serving:
            self._serves(name, said.term)
        else:
            self._belief.resigns(name, said.term)

    def _serves(self, node: str, term: int) -> None:
        """Record that *node* serves in *term*; if new, wake requests and give up those
        elsewhere.
        """
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
        """The leading node and its link; NoLeader if there is none at *until* (loop time)."""
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
        """Accept lower terms, of a group made anew: a majority has only those, and one node
        serves.
        """
        is_majority = 2 * len(statuses) > self._group_size
        if is_majority and max(status.term for status in statuses.values()) < self._belief.term:
            for name, status in statuses.items():
                if status.is_serving:
                    logger.warning("the broker group was made anew", extra={"broker_group": self.broker_group})
                    self._belief = LeaderBelief()
                    self._serves(name, status.term)

    def flush(self) -> None:
        """Send the requests written in this turn of the loop now, not at its end."""
        for node in self._nodes.values():
            if node.link is not None:
                node.link.flush()

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """Every linked node's own status, for display; {} for one without an answer in time."""
        return await self._search.statuses()

    # Requests -------------------------------------------------------------------------------------
    async def ask(
        self,
        request: LinkRequest[R],
        raw: Sequence[bytes | bytearray | memoryview] = (),
        *,
        is_repeatable: bool,
        deadline_ms: int = APPEND_DEADLINE_MS,
        is_prompt: bool = True,
    ) -> tuple[R, memoryview]:
        """The leader's reply to *request* and the bytes behind it. *raw* goes behind the request.
        *is_prompt* False: it may take its time, as a long poll.
        NoLeader, Overloaded and the broker's own errors: nothing was done. OutcomeUnknown: it may
        have been done, or (*is_repeatable*) every repeat up to the deadline failed too.
        LinkReplyMalformed: reply or request cannot be decoded.
        """
        code = request.code
        is_due = is_prompt and code in DUE_READS
        if is_due and self.reading >= READS_AT_A_TIME_MAX:
            raise Overloaded(what=f"reads at a time from broker group '{self.broker_group}'")
        self.reading += is_due
        try:
            parts = head_parts(request, raw)
            if (add := self._additions.get(code)) is not None:
                parts = add(parts)
            body = await self._request(code, parts, is_repeatable, deadline_ms, is_prompt=is_prompt)
            return cast("tuple[R, memoryview]", read_head(request.reply, body))
        except LinkBodyMalformed as error:
            raise LinkReplyMalformed(**error.fields) from error
        finally:
            self.reading -= is_due

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
                # The whole time for each attempt: a repeat on one link could only repeat the work.
                frame = await self._attempt(node, link, code, parts, left_s, is_prompt=is_prompt)
            except (LinkBusy, FrameTooLarge) as error:
                if is_open:
                    raise OutcomeUnknown() from error
                raise Overloaded(what=f"requests on their way to broker group '{self.broker_group}'") from error
            except LinkError as error:
                self._lost(node, link)
                if not is_repeatable or loop.time() >= deadline:
                    raise OutcomeUnknown() from error
                # The first attempt may have arrived: only the deadline ends the search.
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
        """The reply of *node*, leader or not. LinkError, or the node's own error."""
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
        """Send to *node* once. Errors of Link.request, and GivenUp if another node took over."""
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
        """Handle a request without a reply; the leader of a lost link is searched again."""
        entry = self._nodes.get(node)
        if link.closed and entry is not None and entry.link in {None, link}:
            self._belief.forget(node)
        self._on_routing_error()

    def _heed(self, error: TernError, node: str, *, is_first: bool) -> TernError:
        """Learn from *node*'s refusal; an unexplained failure is an open outcome."""
        if isinstance(error, NotLeader | NoLeader):
            hint = str(error.fields.get("leader", ""))
            # Only the first hint is followed: later ones may form a circle.
            self._belief.refused(node, hint if is_first and hint in self._nodes else "")
            self._on_routing_error()
        elif error.status >= 500 and not error.retryable:
            logger.error("a broker failed", extra={"node": node, "code": error.code, "detail": error.detail})
            return OutcomeUnknown()
        return error


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
