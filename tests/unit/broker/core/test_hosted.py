"""What a broker group tells of the topics that it hosts: how much every group has still to read, page by page, and what died."""

from collections import deque
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tern_broker.config import BrokerConfig
from tern_broker.core import hosted
from tern_broker.core.descriptions import list_groups
from tern_broker.core.hosted import dead_groups, hosted_page
from tern_broker.engine import Engine
from tern_broker.link.hosted import HostedRequests
from tern_broker.reading.turns import Turns
from tern_remoting import Link
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.heads import read_head
from tern_wire.link.requests import body_parts, read_body
from tests.support.broker.roomy_link import RoomyLink
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles


def ended(steps: Generator[None, None, dict[str, Any]]) -> dict[str, Any]:
    """What *steps* come to, however many they are."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, Any] = end.value
            return found


def page(broker: SingleBroker, after: str = "", limit: int = 1_000) -> dict[str, Any]:
    """One page of what *broker* hosts."""
    state = broker.state
    return ended(hosted_page(state.names, state.leasing, state.timing, after=after, limit=limit))


def declare(broker: SingleBroker, group: str, **settings: Any) -> None:
    """A consumer group with these settings."""
    broker.ask(CommandKind.CREATE_GROUP, encode_msgpack({"group": group, **settings}))


@pytest.fixture
def broker() -> Generator[SingleBroker, None, None]:
    """With topic t of two queues and group g, which has read nothing."""
    made = SingleBroker(FaultyFiles())
    made.create()
    yield made
    made.close()


def test_what_a_group_has_not_settled_is_left_to_be_read(broker: SingleBroker) -> None:
    """Never received, leased, given back: each counts until it is acknowledged; what is leased is told apart."""
    broker.send("t", (0, b"a"), (0, b"b"), (1, b"c"))
    assert page(broker) == {"topics": [["t", 3, 0, []]], "more": False}
    held = broker.receive(messages_max=2)
    assert page(broker)["topics"] == [["t", 3, 0, [["g", 3, 2]]]]
    broker.ack(held[0][0])
    assert page(broker)["topics"] == [["t", 3, 0, [["g", 2, 1]]]]
    broker.ack(held[1][0])
    rest = broker.receive()
    broker.ack(*(row for row, _ in rest))
    assert page(broker)["topics"] == [["t", 3, 0, [["g", 0, 0]]]]


def test_a_queue_that_a_group_has_not_begun_is_left_as_its_start_says(broker: SingleBroker) -> None:
    """All that is kept for who begins with the oldest, nothing for who begins with what comes."""
    declare(broker, "late", start="latest")
    broker.send("t", (0, b"a"), (1, b"b"), (1, b"c"))
    for group, start in (("g", 0), ("late", 1)):
        broker.ask(
            CommandKind.COMMIT_OFFSETS,
            encode_msgpack({"group": group, "topic": "t", "offsets": {"0": start}, "expected": {}}),
        )
    assert page(broker)["topics"] == [["t", 3, 0, [["g", 3, 0], ["late", 0, 0]]]]


def test_messages_that_wait_for_their_time_are_told(broker: SingleBroker) -> None:
    """They are in no queue yet."""
    broker.send("t", (0, b"a"), deliver_ms=broker.proposer.now_ms() + 60_000)
    assert page(broker)["topics"] == [["t", 0, 1, []]]


def test_topics_are_told_page_by_page_in_order_of_their_names(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every namespace; a page ends after so many topics, and after so many rows, but never without one."""
    for topic in ("b", "shop%a", "c"):
        broker.ask(CommandKind.CREATE_TOPIC, encode_msgpack({"topic": topic, "queues": 1}))
    first = page(broker, limit=2)
    assert ([row[0] for row in first["topics"]], first["more"]) == (["b", "c"], True)
    second = page(broker, after="c", limit=2)
    assert ([row[0] for row in second["topics"]], second["more"]) == (["shop%a", "t"], False)
    monkeypatch.setattr(hosted, "HOSTED_ROWS_MAX", 0)
    assert page(broker) == {"topics": [["b", 0, 0, []]], "more": True}


def test_a_page_is_looked_up_in_steps(broker: SingleBroker) -> None:
    """One for each topic and each group of it, so that a long one can be put off anywhere."""
    broker.send("t", (0, b"a"))
    for group in ("h", "i"):
        declare(broker, group)
        broker.receive(group=group)
    state = broker.state
    assert len(state.leasing.deliveries) == 2
    steps = sum(1 for _ in hosted_page(state.names, state.leasing, state.timing, after="", limit=10))
    assert steps >= 1 + len(state.leasing.deliveries)


def test_a_page_is_answered_over_the_link_in_turns(broker: SingleBroker) -> None:
    """Once, at its end; dead letters are told with the first page alone; a page of no rows, or of too many, is a broken peer's."""
    replies: list[dict[str, Any]] = []
    link = RoomyLink.answering(
        lambda _opaque, code, parts: replies.append(read_body(b"".join(parts))[0] | {"is": code})
    )
    soon: deque[Any] = deque()
    turns = Turns(soon.append, lambda: 0.0)
    engine = cast(Engine, SimpleNamespace(state=broker.state, turns=turns))
    requests = HostedRequests(cast(BrokerConfig, None), engine)
    (hosted,) = requests.handlers()

    def ask(**head: Any) -> None:
        asked, raw = read_head(hosted.kind, b"".join(body_parts(head)))
        hosted.handle(cast(Link, link), 1, asked, raw)

    broker.state.leasing.dead_topics.ensure(broker.state.names.groups["g"]).ends[:] = [1, 1]
    for after in ("", "s"):
        ask(after=after, limit=10)
        while soon:
            soon.popleft()()
    told = {"topics": [["t", 0, 0, []]], "more": False, "open": 0, "is": 0}
    assert replies == [
        {**told, "dead_letters": 1, "dead_groups": [["g", 1]]},
        {**told, "dead_letters": 0, "dead_groups": []},
    ]
    for limit in (0, 1_001, "10"):
        with pytest.raises(LinkBodyMalformed):
            ask(after="", limit=limit)


def test_dead_letters_are_counted_with_the_groups_that_have_the_most(broker: SingleBroker) -> None:
    """Nobody reads them until they are redriven, and they go with the broker group."""
    state = broker.state
    assert dead_groups(state.names, state.leasing) == {"dead_letters": 0, "dead_groups": []}
    declare(broker, "h")
    for group, count in (("g", 2), ("h", 3)):
        dead = state.leasing.dead_topics.ensure(state.names.groups[group])
        dead.ends[:] = [count, count]
    assert dead_groups(state.names, state.leasing) == {"dead_letters": 5, "dead_groups": [["h", 3], ["g", 2]]}


def test_groups_are_listed_for_everybody_or_for_one_namespace(broker: SingleBroker) -> None:
    """Who joins a mesh needs those of all namespaces; clients see their own."""
    declare(broker, "shop%h")
    change = {"producer_group": "shop%p", "create": True}
    broker.ask(CommandKind.ALTER_PRODUCER_GROUP, encode_msgpack(change))
    names, producers = broker.state.names, broker.state.producers
    for namespace, consumers, found in ((None, ["g", "shop%h"], ["shop%p"]), ("", ["g"], []), ("bank", [], [])):
        listed = list_groups(names, namespace=namespace, pattern="", after="", limit=10, descending=False)
        assert [row["group"] for row in listed["groups"]] == consumers
        told = producers.describe(namespace, "", 10)
        assert [row["producer_group"] for row in told["groups"]] == found
