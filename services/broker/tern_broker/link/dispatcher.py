"""The dispatcher of link requests from proxies and checkers. Runs in the core loop; nothing here
waits.

Every request gets exactly one reply, unless its link has closed. Each subject has a file:
`link/sends.py`, `link/receives.py`, `link/reads.py`, `link/admin.py`, `link/members.py`,
`link/offsets.py`, `link/queries.py`, `link/replies.py`, `link/transactions.py`,
`link/producers.py`, `link/principals.py`, `link/hosted.py`, `link/read_plans.py`,
`link/read_leases.py`, `link/publications.py`; shared code is in `link/requests.py`.
"""

import logging
from collections.abc import Callable
from random import Random

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.engine import Engine
from tern_broker.link.admin import AdminRequests
from tern_broker.link.callers import Callers
from tern_broker.link.dead_letters import DeadLetterRequests
from tern_broker.link.hosted import HostedRequests
from tern_broker.link.members import MemberRequests
from tern_broker.link.offsets import OffsetRequests
from tern_broker.link.principals import PrincipalRequests
from tern_broker.link.producers import ProducerRequests
from tern_broker.link.publications import PublicationRequests
from tern_broker.link.queries import QueryRequests
from tern_broker.link.read_leases import ReadLeaseRequests
from tern_broker.link.read_plans import ReadPlanRequests
from tern_broker.link.reads import ReadRequests
from tern_broker.link.receives import ReceiveRequests
from tern_broker.link.replies import ReplyRequests
from tern_broker.link.requests import Handler, Requests
from tern_broker.link.sends import SendRequests
from tern_broker.link.statistics import StatisticsRequests
from tern_broker.link.timers import TimerRequests
from tern_broker.link.transactions import TransactionRequests
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_broker.waiting.waiters import Waiters
from tern_remoting import Frame, Link
from tern_wire.errors import LinkBodyMalformed, Overloaded
from tern_wire.limits import APPEND_DEADLINE_MS
from tern_wire.link.heads import read_head
from tern_wire.link.requests import RequestCode
from tern_wire.principals.caller import TELLING

log = logging.getLogger(__name__)
# Shorter than a proxy's timeout: the proxy gets Overloaded instead, and returns a retry delay to
# its client.
ROOM_WAIT_MAX_S = 0.8 * APPEND_DEADLINE_MS / 1_000
# The requests that a checker may make; proxies may make all.
CHECKER_REQUESTS = frozenset(
    {
        *(RequestCode.CLAIM_CHECKS, RequestCode.REPORT_CHECKS, RequestCode.END_TRANSACTIONS),
        *(RequestCode.DESCRIBE_PRODUCER_GROUP, RequestCode.STATUS),
    }
)


class LinkDispatcher:
    """Owner: the core loop."""

    def __init__(
        self, config: BrokerConfig, engine: Engine, *, key: bytes, rng: Random, monotonic: Callable[[], float]
    ) -> None:
        self._engine, self._monotonic = engine, monotonic
        self._callers = Callers(key)
        self.sends = SendRequests(config, engine, rng=rng, monotonic=monotonic)
        self.receives = ReceiveRequests(config, engine, rng=rng, monotonic=monotonic)
        self._reads = ReadRequests(config, engine, monotonic=monotonic)
        shares = NamespaceShares(config, lambda: engine.state)
        subjects: list[Requests] = [self.sends, self.receives, self._reads, AdminRequests(config, engine, shares)]
        subjects.append(MemberRequests(config, engine, shares))
        subjects.append(DeadLetterRequests(config, engine, monotonic=monotonic))
        self.offsets = OffsetRequests(config, engine, monotonic=monotonic)
        subjects.append(self.offsets)
        subjects += [QueryRequests(config, engine), StatisticsRequests(config, engine)]
        subjects += [ReadPlanRequests(config, engine), ReadLeaseRequests(config, engine)]
        subjects += [TimerRequests(config, engine), HostedRequests(config, engine)]
        subjects.append(ReplyRequests(config, engine, monotonic=monotonic))
        subjects.append(TransactionRequests(config, engine, monotonic=monotonic))
        subjects += [ProducerRequests(config, engine, shares), PrincipalRequests(config, engine)]
        subjects.append(PublicationRequests(config, engine, self.sends, rng=rng))
        self._handlers: dict[int, Handler] = {each.code: each for subject in subjects for each in subject.handlers()}
        # Links with reads that wait for room.
        self._crowded: dict[Link, None] = {}
        for subject in subjects:
            subject.crowded = self._crowded
        self._current_reads = frozenset().union(*(subject.reads for subject in subjects))
        self._anywhere = frozenset().union(*(subject.anywhere for subject in subjects))
        engine.on_applied.append(self._applied)
        engine.on_clock.append(self.sweep)

    @property
    def waiters(self) -> Waiters:
        """The parked notifications."""
        return self.receives.waiters

    def on_frame(self, link: Link, frame: Frame) -> None:
        """Handle one request."""

        def ready(is_current: bool) -> None:
            self._handle(link, frame, is_leader=is_current)

        if frame.code in self._current_reads and self._engine.raft.is_serving:
            # A leader that was deposed and does not know it yet must not answer from its old state.
            self._engine.raft.when_current(ready)
        else:
            self._handle(link, frame, is_leader=self._engine.raft.is_serving)

    def _handle(self, link: Link, frame: Frame, *, is_leader: bool) -> None:
        try:
            if frame.code in TELLING:
                self._callers.hear(link, frame)
            # While it is undecided which node is right, the applied state of every node is in
            # doubt.
            is_held = self._engine.raft.is_held and frame.code != RequestCode.STATUS
            if not is_leader and (is_held or frame.code not in self._anywhere):
                raise self._reads.not_leader()
            handler = self._handlers.get(frame.code)
            if handler is None:
                raise LinkBodyMalformed(reason=f"request {frame.code} is not known to this release")
            request, raw = read_head(handler.kind, frame.body)
            handler.handle(link, frame.opaque, request, raw)
        except Exception as error:
            self._refuse(link, frame, error)

    def _refuse(self, link: Link, frame: Frame, error: Exception) -> None:
        """Refuse a request that raised, and keep its link open: a proxy's link carries the requests
        of many clients.
        """
        if isinstance(error, Overloaded):
            self._engine.proposer.refused[str(error.fields.get("what", ""))] += 1
        elif isinstance(error, LinkBodyMalformed):
            log.warning("a request is refused as malformed", extra={"code": frame.code, "reason": str(error)})
        self._reads.failed(link, frame.opaque, error)

    def sweep(self) -> None:
        """Answer parked notifications and pulls whose deadline has passed, and all of them at a
        node that does not lead.

        Called every few ms.
        """
        self._reads.sweep(self._monotonic())
        for link in list(self._crowded):
            link.window.give_up_after(ROOM_WAIT_MAX_S)
            if not link.window.waiting:
                del self._crowded[link]
        if len(self.waiters):
            if self._engine.raft.is_serving:
                self.waiters.sweep(self._monotonic())
            else:
                self.waiters.refuse_all(self._reads.not_leader())

    def _applied(self, applied: Applied) -> None:
        self.waiters.applied(applied)
        self._reads.applied(applied)
