"""Requests that meet a bug at the broker's dispatcher: each is answered, its link lives, and its attempt id is free for the next one."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tern_broker.engine import Engine
from tern_broker.link.dispatcher import LinkDispatcher
from tern_broker.link.receives import ReceiveRequests
from tern_broker.link.requests import Handler
from tern_broker.proposal import Proposal
from tern_remoting import Frame
from tern_wire.errors import LinkBodyMalformed, NotLeader
from tern_wire.link.receives import Receive
from tern_wire.link.requests import ERROR, RequestCode, body_parts, read_body, read_error
from tern_wire.link.status import GetStatus
from tests.support.broker.manual_proposer import ManualProposer
from tests.support.broker.roomy_link import RoomyLink

TOKEN = b"0123456789abcdef"
REFUSED = NotLeader(node="a", leader="b", broker_group="g")


# The dispatcher ----------------------------------------------------------------------------------------------------------
class Link(RoomyLink):
    """The link of a proxy: what was replied."""

    closed = False
    peer = SimpleNamespace(role="proxy", name="p")

    def __init__(self) -> None:
        self.replies: list[tuple[int, int, bytes]] = []

    def reply(self, opaque: int, code: int, parts: Any) -> bool:
        """As Link."""
        self.replies.append((opaque, code, b"".join(parts)))
        return True


def a_dispatcher(engine: SimpleNamespace) -> LinkDispatcher:
    """A dispatcher that knows only what the test gives it to handle."""
    dispatcher = LinkDispatcher.__new__(LinkDispatcher)
    dispatcher._engine = cast(Engine, engine)
    dispatcher._handlers = {}
    dispatcher._current_reads, dispatcher._anywhere = frozenset(), frozenset()
    config = SimpleNamespace(node="a", broker_group="g")
    dispatcher._reads = cast(
        Any, ReceiveRequests(cast(Any, config), dispatcher._engine, rng=Random(1), monotonic=lambda: 0.0)
    )
    return dispatcher


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IndexError("no such row"), "internal"),
        (AssertionError(), "internal"),
        (RuntimeError("no"), "internal"),
        (KeyError("topic"), "internal"),
        (TypeError("no int"), "internal"),
        (LinkBodyMalformed(reason="not our release"), "link-body-malformed"),
        (REFUSED, "not-leader"),
        (OSError(24, "Too many open files"), "node-lacks-resources"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_a_request_that_raises_is_answered_and_costs_its_link_nothing(error: Exception, code: str) -> None:
    """The link carries the requests of everybody at that proxy."""
    dispatcher = a_dispatcher(SimpleNamespace(raft=SimpleNamespace(is_serving=True, is_held=False)))

    def handler(*_: Any) -> None:
        raise error

    dispatcher._handlers[7] = Handler(RequestCode.STATUS, GetStatus, handler)
    link = Link()
    dispatcher.on_frame(cast(Any, link), Frame(7, 3, 0, "", memoryview(b"".join(body_parts({})))))
    ((opaque, status, body),) = link.replies
    assert (opaque, status, read_error(body).code) == (3, ERROR, code)


# Receives ----------------------------------------------------------------------------------------------------------
def receiving(manual: ManualProposer, **more: Any) -> tuple[ReceiveRequests, Link, Callable[[int], None]]:
    """RECEIVE with an attempt id over a proposer; how to ask, by number."""
    engine = SimpleNamespace(
        state=manual.log.state,
        proposer=manual.proposer,
        raft=SimpleNamespace(when_current=lambda ready: ready(True)),
        store=SimpleNamespace(read_queue=manual.log.read, queues=None),
        statistics=SimpleNamespace(delivered=lambda *_: None),
        reader=SimpleNamespace(read_messages=lambda *_: SimpleNamespace(data=memoryview(b"body"))),
    )
    engine.__dict__.update(more)
    requests = ReceiveRequests(cast(Any, None), cast(Engine, engine), rng=Random(1), monotonic=lambda: 0.0)
    link = Link()
    asked = Receive(topic="t", group="g", max_messages=1, max_bytes=1 << 20, invisible_ms=1_000, attempt_id=TOKEN)
    (handle,) = (each.handle for each in requests.handlers() if each.code == RequestCode.RECEIVE)

    def ask(opaque: int) -> None:
        handle(cast(Any, link), opaque, asked, memoryview(b""))

    return requests, link, ask


@pytest.mark.parametrize("where", ["the first", "a repeat"])
def test_a_receive_that_cannot_be_answered_does_not_keep_its_attempt_id(where: str) -> None:
    """Those that repeat it are answered, each by itself: else they, and all later ones, would wait for ever."""
    manual = ManualProposer()
    calls: list[str] = []

    def read_messages(*_: Any) -> Any:
        calls.append("read")
        if where == "the first" or len(calls) > 1:
            raise IndexError("no such row")
        return SimpleNamespace(data=memoryview(b"body"))

    requests, link, ask = receiving(manual, reader=SimpleNamespace(read_messages=read_messages))
    manual.send()
    manual.turn()
    manual.commit()
    for opaque in (1, 2, 3):
        ask(opaque)
    manual.turn()
    manual.commit()
    assert [opaque for opaque, *_ in link.replies] == [1, 2, 3]
    failed = [
        opaque for opaque, status, body in link.replies if status == ERROR and read_error(body).code == "internal"
    ]
    assert failed == ([1, 2, 3] if where == "the first" else [2, 3])
    assert requests._repeats._waiting == {}


def test_a_receive_whose_first_step_fails_does_not_keep_its_attempt_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything was proposed."""
    manual = ManualProposer()
    requests, link, ask = receiving(manual)

    def submit(_proposal: Proposal) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(manual.proposer, "submit", submit)
    for opaque in (1, 2):
        ask(opaque)
    assert [(opaque, read_error(body).code) for opaque, _, body in link.replies] == [(1, "internal"), (2, "internal")]
    assert requests._repeats._waiting == {}
    monkeypatch.undo()
    ask(3)
    manual.turn()
    assert (link.replies[-1][:2], read_body(link.replies[-1][2])[0]["runs"]) == ((3, 0), [])
