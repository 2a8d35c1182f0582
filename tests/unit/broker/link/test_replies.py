"""AWAIT_REPLY at a broker: stored replies found, later ones waited for, the oldest one first, and nobody else's ever."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.replies import ReplyRequests
from tern_broker.reading.turns import Turns
from tern_remoting import Link
from tern_wire.errors import TopicNotFound
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.heads import read_head
from tern_wire.link.queries import AwaitReply
from tern_wire.link.requests import ERROR, Parts, body_parts, read_body, read_error
from tern_wire.records.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY_TO
from tern_wire.records.read import decode_record
from tests.support.broker.roomy_link import RoomyLink
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles

TOPIC, SHOP = "dev_REPLY_TOPIC", "broker-a:shop-7"


class ReplyBroker(RoomyLink):
    """The requests over a broker of one node; its clock and its turns move when the test says so."""

    def __init__(self) -> None:
        self.broker = SingleBroker(FaultyFiles())
        self.broker.create(TOPIC, 2)
        self.now_s = 50.0
        self.soon: deque[Callable[[], None]] = deque()
        self.raft = SimpleNamespace(is_serving=True, leader="broker-a-1")
        broker = self.broker
        self.engine = SimpleNamespace(
            store=broker.store,
            turns=Turns(self.soon.append, lambda: self.now_s),
            raft=self.raft,
            on_applied=[],
            on_clock=[],
            state=broker.state,
        )
        config = BrokerConfig(
            peers=("broker-a-0=127.0.0.1:10912",),
            data_dir=Path("data"),
            cluster_key_file=Path("key"),
            group_id="a" * 32,
        )
        self.requests = ReplyRequests(config, cast(Engine, self.engine), monotonic=lambda: self.now_s)
        apply = broker.proposer.applied

        def applied(index: int, term: int, what: Any) -> None:
            apply(index, term, what)
            for listener in self.engine.on_applied:
                listener(what)

        broker.proposer.applied = applied  # type: ignore[method-assign, assignment]
        self.answers: dict[int, Any] = {}

    def reply(self, opaque: int, code: int, parts: Parts) -> bool:
        """As a link: the body of the reply or the code of the error."""
        assert opaque not in self.answers, "two replies to one request"
        body = b"".join(parts)
        if code == ERROR:
            self.answers[opaque] = read_error(body).code
        else:
            head, raw = read_body(body)
            self.answers[opaque] = decode_record(raw).body if head["found"] else None
        return True

    def ask(
        self, opaque: int, correlation_id: str = "c1", *, to: str = SHOP, wait_ms: int = 1_000, **more: Any
    ) -> None:
        """One AWAIT_REPLY."""
        head = {"topic": TOPIC, "correlation_id": correlation_id, "reply_to": to, "from_ms": 0, "wait_ms": wait_ms}
        request, raw = read_head(AwaitReply, b"".join(body_parts({**head, **more})))
        (handler,) = self.requests.handlers()
        handler.handle(cast(Link, self), opaque, request, raw)

    def run(self) -> None:
        """All turns that are due."""
        while self.soon:
            self.soon.popleft()()

    def store(
        self, body: bytes, correlation_id: str = "c1", *, to: str = SHOP, kind: str = "reply", queue: int = 0
    ) -> None:
        """A reply, as a proxy stores it."""
        properties = {CORRELATION_ID: correlation_id, REPLY_TO: to, MESSAGE_TYPE: kind}
        self.broker.send(TOPIC, (queue, body), tag=correlation_id, keys=correlation_id, properties=properties)

    def sweep(self, after_s: float) -> None:
        """The clock *after_s* later."""
        self.now_s += after_s
        for listener in self.engine.on_clock:
            listener()
        self.run()


def test_a_reply_that_is_stored_is_found_at_once_and_the_first_one_wins() -> None:
    """In whichever queue it lies; those of other clients and other requests, and what only looks like one, are passed over."""
    node = ReplyBroker()
    node.store(b"no reply", kind="request")
    node.store(b"another client's", to="broker-a:shop-8")
    node.store(b"another request's", "c2")
    node.store(b"first", queue=1)
    node.store(b"second")
    node.ask(1)
    node.ask(2, "c2")
    node.ask(3, "c2", to="broker-a:shop-8", wait_ms=0)
    node.run()
    assert node.answers == {1: b"first", 2: b"another request's", 3: None}
    assert len(node.requests.waiters) == 0


def test_a_parked_wait_is_woken_by_its_reply_and_by_no_other() -> None:
    """ "Aa" and "BB" have one hash: the record's own id decides, and who looked in vain goes on waiting."""
    node = ReplyBroker()
    node.ask(1, "Aa")
    node.ask(2, "BB")
    node.run()
    node.store(b"for BB", "BB")
    node.run()
    assert node.answers == {2: b"for BB"}
    node.store(b"another client's", "Aa", to="broker-a:shop-8")
    node.broker.send(TOPIC, (0, b"no reply at all"), tag="Aa")
    node.run()
    assert len(node.requests.waiters) == 1
    node.store(b"for Aa", "Aa")
    node.run()
    assert node.answers == {1: b"for Aa", 2: b"for BB"}
    assert len(node.requests.waiters) == 0


def test_a_reply_that_comes_while_it_is_looked_for_is_found() -> None:
    """Behind the walk through the index and before the end of the look: the look begins again. A wait is parked before it looks."""
    node = ReplyBroker()
    query = node.requests.query
    looks: list[Any] = []

    def slow_query(*asked: Any) -> Any:
        looks.append(query(*asked))

        def steps() -> Iterator[None]:
            yield from looks[-1].steps()
            if len(looks) == 1:
                node.store(b"meanwhile")

        return SimpleNamespace(steps=steps, found=looks[-1].found, next=None)

    node.requests.query = slow_query  # type: ignore[method-assign, assignment]
    node.ask(1)
    assert len(node.requests.waiters) == 1
    node.run()
    assert (node.answers, len(looks)) == ({1: b"meanwhile"}, 2)


def test_a_wait_ends_at_its_deadline_and_never_before_it_has_looked() -> None:
    """Not found is an answer, not an error; a wait of 0 ms looks once."""
    node = ReplyBroker()
    node.ask(1)
    node.ask(2, wait_ms=0)
    node.run()
    assert node.answers == {2: None}
    node.sweep(0.9)
    assert node.answers == {2: None}
    node.sweep(0.2)
    assert node.answers == {1: None, 2: None}
    node.store(b"late")
    node.ask(3, wait_ms=0)
    node.sweep(0.1)
    assert node.answers[3] == b"late"


def test_replies_to_an_older_request_under_the_same_id_are_not_taken() -> None:
    """`from_ms` is when the request was born: what was stored before is somebody's reply to something else."""
    node = ReplyBroker()
    node.store(b"old")
    found_ms = node.broker.state.now_ms
    node.ask(1, from_ms=found_ms + 1)
    node.ask(2, from_ms=found_ms)
    node.run()
    assert node.answers == {2: b"old"}


def test_a_deposed_leader_refuses_what_it_has_parked() -> None:
    """The proxy goes on at the next one."""
    node = ReplyBroker()
    node.ask(1)
    node.run()
    node.raft.is_serving = False
    node.sweep(0.0)
    assert node.answers == {1: "not-leader"}
    assert len(node.requests.waiters) == 0


def test_who_waits_for_a_topic_that_is_deleted_hears_so() -> None:
    """And a topic that was never there is refused at once."""
    node = ReplyBroker()
    node.ask(1)
    node.run()
    node.broker.ask(CommandKind.DELETE_TOPIC, encode_msgpack({"topic": TOPIC, "topic_id": 0}))
    node.run()
    assert node.answers == {1: "topic-not-found"}
    with pytest.raises(TopicNotFound):
        node.ask(2)
