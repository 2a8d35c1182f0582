"""Shared code of all subjects of link requests: look up names, propose commands, answer failed
reads.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tern_broker.config import BrokerConfig
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.fatal_stop import DAMAGE
from tern_broker.proposal import Proposal
from tern_broker.waiting.completion import lack_of
from tern_remoting import Link, problem_of
from tern_store import StoreError
from tern_wire.errors import (
    GroupNotFound,
    LinkBodyMalformed,
    NotLeader,
    Overloaded,
    QueueNotFound,
    StorageDamaged,
    TernError,
    TopicNotFound,
)
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.heads import LinkReply, LinkRequest, head_parts
from tern_wire.link.requests import ERROR, RequestCode, error_parts

log = logging.getLogger(__name__)
Q = TypeVar("Q", bound=LinkRequest[Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of one request code: *handle* gets the link, the request's number, its head as a
    *kind*, and its raw bytes.
    """

    code: RequestCode
    kind: Any
    handle: Callable[[Link, int, Any, memoryview], None]


def handler(kind: type[Q], handle: Callable[[Link, int, Q, memoryview], None]) -> Handler:
    """Return the handler of the requests *kind*; *handle* replies exactly once, or raises a
    TernError.
    """
    return Handler(kind.code, kind, handle)


# Credit of its link that an answer of unknown size reserves: a page beside sends is twice as large.
ANSWER_SIZE_GUESS_BYTES = 128 * 1024


class Requests:
    """Requests of one subject; subclasses list them in `handlers`. Owner: the core loop."""

    # Requests that are answered from the applied state, without an entry.
    reads: frozenset[int] = frozenset()
    # Requests that a node answers even if it does not lead.
    anywhere: frozenset[int] = frozenset()

    def __init__(self, config: BrokerConfig, engine: Engine) -> None:
        self._config, self._engine = config, engine
        # Links with reads that wait for room; the dispatcher shares it among all subjects.
        self.crowded: dict[Link, None] = {}

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        raise NotImplementedError

    # For subclasses -------------------------------------------------------------------------------
    def propose(
        self,
        link: Link,
        opaque: int,
        kind: CommandKind,
        command: dict[str, Any],
        reply: type[LinkReply],
        *,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Propose *command*, and answer with its verdict, which has the fields of *reply*.
        *release* is called with the verdict known.
        """
        payload = encode_msgpack(command)

        def done(verdict: Any, _picks: list[Pick]) -> None:
            release()
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
                return
            try:
                answer = msgspec.convert(verdict, reply)
            except msgspec.ValidationError as error:
                self.failed(link, opaque, error)
            else:
                self.answer(link, opaque, answer)

        self._engine.proposer.submit(Proposal(kind, len(payload), done, build=lambda _now: [payload]))

    def answer(
        self, link: Link, opaque: int, reply: LinkReply, raw: Sequence[bytes | bytearray | memoryview] = ()
    ) -> None:
        """Reply with *reply*, followed by *raw*."""
        link.reply(opaque, 0, head_parts(reply, raw))

    def when_room(
        self,
        link: Link,
        opaque: int,
        flow: Hashable,
        size_bytes: int,
        begin: Callable[[int], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Run *begin*, which reads and answers, once the link has room for about *size_bytes*.

        *begin* gets the size limit of the answer (0: none). *flow*: shares room equally with all
        other flows. The state may have changed before *begin* runs. *failed* replies with an error
        that *begin* raised, and with Overloaded after too long a wait.
        """

        fail = failed or (lambda error: self.failed(link, opaque, error))

        def run(page_bytes: int) -> None:
            try:
                begin(page_bytes)
            except Exception as error:
                fail(error)

        late = Overloaded(what="answers that a proxy has room for")
        if link.when_room(opaque, flow, size_bytes, run, lambda: fail(late)):
            self.crowded[link] = None

    def answer_in_turns(
        self, link: Link, opaque: int, steps: Iterator[None], failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Run *steps*, which reply at their end, beside other work, once there is room for an
        answer; a raised error is the reply.
        """
        self.when_room(
            *(link, opaque, type(self).__name__, ANSWER_SIZE_GUESS_BYTES),
            lambda _page: self.run(link, opaque, steps),
            failed,
        )

    def run(self, link: Link, opaque: int, steps: Iterator[None]) -> None:
        """Run *steps*, which reply at their end, beside other work; the answer already has room."""
        self._engine.turns.run(steps, lambda error: self.failed(link, opaque, error))

    def refuse(self, link: Link, opaque: int, error: TernError) -> None:
        """Reply with *error*."""
        link.reply(opaque, ERROR, error_parts(error))

    def failed(self, link: Link, opaque: int, error: Exception) -> None:
        """Reply with an error that a request has raised: a TernError, a failed read, or a bug,
        which is named and logged.
        """
        if isinstance(error, OSError | StoreError):
            self.unreadable(link, opaque, error)
        else:
            self.refuse(link, opaque, problem_of(error))

    def unreadable(self, link: Link, opaque: int, error: Exception, answer: TernError | None = None) -> None:
        """Refuse a request whose record cannot be read, and log it. Damage ends the node, any other
        error does not.
        """
        log.error("a read failed", exc_info=error)
        self.refuse(link, opaque, answer or self._refusal(error))
        if isinstance(error, DAMAGE):
            self._engine.fail_soon(error)

    def _refusal(self, error: Exception) -> TernError:
        if isinstance(error, DAMAGE):
            return StorageDamaged(node=self._config.node, broker_group=self._config.broker_group)
        if isinstance(error, OSError):
            return lack_of(error, node=self._config.node, broker_group=self._config.broker_group)
        return TernError()

    def topic(self, name: str) -> Topic:
        """Return the topic *name*; raise TopicNotFound."""
        topic = self._engine.state.names.topics.get(name)
        if topic is None:
            raise TopicNotFound(topic=str(name)[:160])
        return topic

    def group(self, name: str) -> Group:
        """Return the consumer group *name*; raise GroupNotFound."""
        group = self._engine.state.names.groups.get(name)
        if group is None:
            raise GroupNotFound(group=str(name)[:160])
        return group

    def queue(self, topic: Topic, queue: Any) -> int:
        """Return *queue*, if *topic* has it here; raise QueueNotFound."""
        if not isinstance(queue, int) or not 0 <= queue < topic.queues:
            raise QueueNotFound(queue=f"{self._config.broker_group}:{queue}", topic=topic.name)
        return queue

    def not_leader(self) -> NotLeader:
        """Return the error that names the current leader, as far as this node knows it."""
        return NotLeader(
            node=self._config.node, leader=self._engine.raft.leader or "", broker_group=self._config.broker_group
        )


def flow_of(reader: str, *what: Hashable) -> Hashable:
    """Return the flow that shares a link's room equally with others: a principal, or without one
    the readers of one thing.
    """
    return reader or what


def kept_to(size_max_bytes: int, page_bytes: int) -> int:
    """Return *size_max_bytes*, at most *page_bytes* if that limit is not 0."""
    return min(size_max_bytes, page_bytes) if page_bytes else size_max_bytes


def bounded(value: Any, low: int, high: int) -> int:
    """Return *value* as an int within the limits. The proxy has checked it, so any other value
    comes from a broken peer.
    """
    if not isinstance(value, int) or not low <= value <= high:
        raise LinkBodyMalformed(reason=f"{value!r} is not in {low}..{high}")
    return value
