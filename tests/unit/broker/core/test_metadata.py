"""Topics and groups in the state machine: created, altered, deleted; and whatever is wrong changes nothing."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tern_broker.core import saving
from tern_broker.core.machine import StateMachine
from tern_wire import limits
from tern_wire.errors import TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import REPLAYED, SENT
from tests.support.broker.entries import Log

TOPIC_KINDS = (CommandKind.CREATE_TOPIC, CommandKind.ALTER_TOPIC, CommandKind.DELETE_TOPIC)
GROUP_KINDS = (CommandKind.CREATE_GROUP, CommandKind.ALTER_GROUP, CommandKind.DELETE_GROUP)


def ask(log: Log, kind: CommandKind, now_ms: int = 5, **request: Any) -> Any:
    """One command's verdict; a refusal is raised."""
    verdict = log.apply(now_ms, (kind, encode_msgpack(request))).verdicts[0]
    if isinstance(verdict, TernError):
        raise verdict
    return verdict


def refused(log: Log, kind: CommandKind, **request: Any) -> TernError:
    """The error of a command, after which the state is as before."""
    before = packed(log.state)
    verdict = log.apply(5, (kind, encode_msgpack(request))).verdicts[0]
    assert isinstance(verdict, TernError), verdict
    assert packed(log.state) == before, "a refusal has changed the state"
    return verdict


def packed(state: StateMachine) -> bytes:
    """Everything that a saved state holds of the parts."""
    return encode_msgpack({name: part.pack() for name, part in state.parts.items()})


def again(state: StateMachine) -> StateMachine:
    """The state, saved and loaded."""
    return saving.load(b"".join(saving.encode(saving.take(state))))


def test_a_topic_gets_what_was_named_and_defaults_for_the_rest() -> None:
    """8 queues, MIXED, read and write."""
    log = Log()
    found = ask(log, CommandKind.CREATE_TOPIC, topic="plain", now_ms=77)
    assert (found["created"], found["queues"], found["type"], found["perm"]) == (True, 8, "MIXED", 6)
    assert (found["attributes"], found["created_ms"]) == ({}, 77)
    named: dict[str, Any] = {"queues": 3, "type": "FIFO", "perm": 4, "attributes": {"owner": "billing"}}
    found = ask(log, CommandKind.CREATE_TOPIC, topic="named", **named)
    assert {name: found[name] for name in named} == named


def test_a_declaration_changes_what_it_names_and_leaves_the_rest() -> None:
    """Queues grow and never shrink; an attribute that is nil goes."""
    log = Log()
    ask(log, CommandKind.CREATE_TOPIC, topic="t", queues=4, type="DELAY", attributes={"a": "1", "b": "2"})
    found = ask(log, CommandKind.CREATE_TOPIC, topic="t")
    assert (found["created"], found["queues"], found["type"]) == (False, 4, "DELAY")
    found = ask(
        log, CommandKind.ALTER_TOPIC, topic="t", mode="alter", queues=6, perm=2, attributes={"a": None, "c": "3"}
    )
    assert (found["queues"], found["perm"], found["attributes"]) == (6, 2, {"b": "2", "c": "3"})
    assert refused(log, CommandKind.CREATE_TOPIC, topic="t", queues=5, perm=6).code == "topic-conflict"


def test_what_must_be_new_is_refused_when_it_is_there_and_what_must_be_there_when_it_is_not() -> None:
    """If-None-Match and PATCH."""
    log = Log()
    log.create("t", group="g")
    assert refused(log, CommandKind.CREATE_TOPIC, topic="t", mode="create").code == "already-exists"
    assert refused(log, CommandKind.CREATE_GROUP, group="g", mode="create").code == "already-exists"
    assert refused(log, CommandKind.ALTER_TOPIC, topic="other", mode="alter").code == "topic-not-found"
    assert refused(log, CommandKind.ALTER_GROUP, group="other", mode="alter").code == "group-not-found"


def test_name_servers_hear_of_changes_that_routes_show_and_of_no_others() -> None:
    """The data version; attributes and groups are not in routes."""
    log = Log()
    log.create("t", group="g")
    before = log.state.metadata.data_version
    unseen: list[dict[str, Any]] = [{}, {"queues": 2}, {"attributes": {"a": "b"}}]
    for change in unseen:
        ask(log, CommandKind.CREATE_TOPIC, topic="t", **change)
    ask(log, CommandKind.CREATE_GROUP, group="g", invisible_ms=9_000)
    assert log.state.metadata.data_version == before
    seen: list[dict[str, Any]] = [{"queues": 3}, {"type": "FIFO"}, {"perm": 4}]
    for change in seen:
        ask(log, CommandKind.ALTER_TOPIC, topic="t", mode="alter", **change)
    assert log.state.metadata.data_version == before + 3


def test_a_deleted_topic_takes_everything_with_it_and_its_name_is_free_again() -> None:
    """Deliveries, leases, deadlines; the new topic has another id, offset 0 and no readers."""
    log = Log()
    topic_id, group_id = log.create()
    log.send(2, (topic_id, 0, b"a", b""), (topic_id, 1, b"b", b""))
    (held, *_) = log.receive(3)
    deleted = log.apply(4, (CommandKind.DELETE_TOPIC, encode_msgpack({"topic": "t", "topic_id": topic_id})))
    assert deleted.verdicts == [{"deleted": True, "topic_id": 0}]
    assert deleted.dropped_topics == {topic_id: 2}
    assert deleted.metadata_changed
    assert not log.state.leasing.deliveries
    assert log.settle(5, (group_id, topic_id, 0, 1, int(held[0].offsets[0]), held[1], 0)) != b"\x00"
    assert not log.state.is_due(1 << 50), "a lease of it still ends"
    new = ask(log, CommandKind.CREATE_TOPIC, topic="t", queues=2)
    assert new["created"]
    assert new["topic_id"] > topic_id
    assert log.send(6, (new["topic_id"], 0, b"c", b""))["offset"].tolist() == [0]
    assert packed(again(log.state)) == packed(log.state)


def test_a_repeated_deletion_is_told_that_it_is_done_and_never_hits_a_new_topic() -> None:
    """By the id; without one it is whatever has the name."""
    log = Log()
    topic_id, group_id = log.create()
    cases: list[tuple[CommandKind, dict[str, Any], str, int]] = [
        (CommandKind.DELETE_TOPIC, {"topic": "t"}, "topic_id", topic_id),
        (CommandKind.DELETE_GROUP, {"group": "g"}, "group_id", group_id),
    ]
    for kind, name, key, old in cases:
        assert ask(log, kind, **name, **{key: old}) == {"deleted": True, key: 0}
        assert ask(log, kind, **name, **{key: old}) == {"deleted": True, key: 0}
        assert ask(log, kind, **name) == {"deleted": False, key: 0}
    new_topic, new_group = log.create()
    assert ask(log, CommandKind.DELETE_TOPIC, topic="t", topic_id=topic_id) == {"deleted": False, "topic_id": new_topic}
    assert ask(log, CommandKind.DELETE_GROUP, group="g", group_id=group_id) == {"deleted": False, "group_id": new_group}
    assert ask(log, CommandKind.DELETE_TOPIC, topic="t")["deleted"]
    assert ask(log, CommandKind.DELETE_GROUP, group="g")["deleted"]


def test_idempotency_keys_of_a_deleted_topic_are_not_those_of_its_successor() -> None:
    """Or its first messages would be taken for repeats, and lost."""
    log = Log()
    old_id, _ = log.create()
    assert log.send(2, (old_id, 0, b"a", b"key"))["status"].tolist() == [SENT]
    assert log.send(3, (old_id, 0, b"a", b"key"))["status"].tolist() == [REPLAYED]
    ask(log, CommandKind.DELETE_TOPIC, topic="t")
    new_id, _ = log.create()
    assert log.send(4, (new_id, 0, b"a", b"key"))["status"].tolist() == [SENT]
    assert log.send(5, (new_id, 0, b"a", b"key"))["status"].tolist() == [REPLAYED]


def test_a_deleted_group_forgets_where_it_was() -> None:
    """One of the same name begins anew; other groups are not touched."""
    log = Log()
    topic_id, group_id = log.create()
    log.create(group="other")
    log.send(2, (topic_id, 0, b"a", b""))
    log.ack_all(4, log.receive(3))
    log.receive(3, group="other")
    assert ask(log, CommandKind.DELETE_GROUP, group="g", group_id=group_id)["deleted"]
    assert len(log.state.leasing.deliveries) == 1
    ask(log, CommandKind.CREATE_GROUP, group="g")
    assert [attempt for _, _, attempt in log.receive(5)] == [1]


def test_a_group_gets_what_was_named_and_keeps_the_rest() -> None:
    """Every setting, through a saved state too."""
    log = Log()
    retry = {"policy": "exponential", "initial_ms": 1_000, "multiplier_permille": 2_000, "max_ms": 10_000}
    named: dict[str, Any] = {
        "invisible_ms": 5_000,
        "start": "time",
        "start_ms": 9,
        "max_attempts": 3,
        "retry": retry,
        "attributes": {"a": "b"},
    }
    flags: dict[str, Any] = {"fifo": True, "consume": False, "broadcast": True}
    found = ask(log, CommandKind.CREATE_GROUP, group="g", **named, **flags)
    assert {name: found[name] for name in (named | flags)} == named | flags
    assert found["retry_delays_ms"] == [1_000, 2_000, 4_000]
    found = ask(log, CommandKind.CREATE_GROUP, group="g", max_attempts=1_000)
    assert found["retry_delays_ms"] == [1_000, 2_000, 4_000, 8_000, 10_000]
    assert found["invisible_ms"] == 5_000
    assert packed(again(log.state)) == packed(log.state)
    assert again(log.state).names.groups["g"] == log.state.names.groups["g"]


def test_defaults_of_a_group_are_rocketmqs() -> None:
    """16 attempts, its table, earliest, enabled."""
    found = ask(Log(), CommandKind.CREATE_GROUP, group="g")
    assert (found["max_attempts"], found["start"], found["consume"], found["invisible_ms"]) == (
        16,
        "earliest",
        True,
        60_000,
    )
    assert found["retry_delays_ms"] == list(limits.RETRY_DELAYS_MS)
    assert len(limits.RETRY_DELAYS_MS) == 16


def test_fifo_changes_only_before_the_first_receive() -> None:
    """What is leased would have to change its form."""
    log = Log()
    topic_id, _ = log.create()
    ask(log, CommandKind.ALTER_GROUP, group="g", mode="alter", fifo=True)
    ask(log, CommandKind.ALTER_GROUP, group="g", mode="alter", fifo=False)
    log.send(2, (topic_id, 0, b"a", b""))
    log.receive(3)
    assert refused(log, CommandKind.ALTER_GROUP, group="g", mode="alter", fifo=True).code == "group-conflict"
    ask(log, CommandKind.ALTER_GROUP, group="g", mode="alter", fifo=False)


def test_a_group_that_is_switched_on_again_wakes_who_waits_for_it() -> None:
    """Only the topics that it reads."""
    log = Log()
    topic_id, _ = log.create()
    log.create("unread")
    log.send(2, (topic_id, 0, b"a", b""))
    log.receive(3)
    ask(log, CommandKind.ALTER_GROUP, group="g", mode="alter", consume=False)
    on = log.apply(5, (CommandKind.ALTER_GROUP, encode_msgpack({"group": "g", "mode": "alter", "consume": True})))
    assert on.woken_topics == {topic_id}


@pytest.mark.parametrize("start", [("earliest", 0), ("latest", 0), ("time", 50)])
def test_where_a_group_begins_is_fixed_at_its_first_receive_in_every_queue(start: tuple[str, int]) -> None:
    """Messages 0 to 2 were there; from `latest` only what comes after, from a time what the leader has looked up: offset 2."""
    log = Log()
    topic_id, _ = log.create()
    ask(log, CommandKind.CREATE_GROUP, group="g", start=start[0], start_ms=start[1])
    log.send(2, *[(topic_id, queue, b"%d" % number, b"") for number in range(3) for queue in (0, 1)])
    first = log.receive(3, look_up=lambda _queue: 2)
    log.send(4, (topic_id, 0, b"new", b""), (topic_id, 1, b"new", b""))
    second = log.receive(5, look_up=lambda _queue: 0)
    offsets = [sorted(int(offset) for pick, *_ in granted for offset in pick.offsets) for granted in (first, second)]
    assert (
        offsets
        == {"earliest": [[0, 0, 1, 1, 2, 2], [3, 3]], "latest": [[], [3, 3]], "time": [[2, 2], [3, 3]]}[start[0]]
    )


@pytest.mark.parametrize("start", ["earliest", "latest", "time"])
def test_a_group_misses_nothing_in_queues_that_a_topic_grows_later(start: str) -> None:
    """It has begun the topic, so what comes is not older than where it began: also what comes before its next receive."""
    log = Log()
    topic_id, _ = log.create()
    ask(log, CommandKind.CREATE_GROUP, group="g", start=start, start_ms=50 if start == "time" else 0)
    log.receive(3)
    log.send(3, (topic_id, 0, b"0", b""))
    log.receive(4)
    ask(log, CommandKind.ALTER_TOPIC, topic="t", mode="alter", queues=4)
    log.send(5, (topic_id, 3, b"1", b""))
    got = [(pick.row[2], pick.offsets.tolist()) for pick, *_ in log.receive(6, look_up=lambda _queue: 1)]
    assert got == [(3, [0])]


def test_limits_of_topics_groups_and_queues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting makes room again, also after a restart."""
    for name in ("TOPICS_MAX", "GROUPS_MAX"):
        monkeypatch.setattr(f"tern_broker.core.metadata.{name}", 2)
    monkeypatch.setattr("tern_broker.core.metadata.QUEUES_MAX", 10)
    log = Log()
    for number in range(2):
        log.create(f"t{number}", group=f"g{number}", queues=4)
    for kind, request in (
        (CommandKind.CREATE_TOPIC, {"topic": "more", "queues": 1}),
        (CommandKind.CREATE_GROUP, {"group": "more"}),
    ):
        assert refused(log, kind, **request).code == "limit-reached"
    assert refused(log, CommandKind.ALTER_TOPIC, topic="t0", mode="alter", queues=7).code == "limit-reached"
    log.state = again(log.state)
    ask(log, CommandKind.ALTER_TOPIC, topic="t0", mode="alter", queues=6)
    ask(log, CommandKind.DELETE_TOPIC, topic="t0")
    ask(log, CommandKind.CREATE_TOPIC, topic="more", queues=6)
    assert refused(log, CommandKind.ALTER_TOPIC, topic="more", mode="alter", queues=7).code == "limit-reached"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 40), 1 << 40)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *(
        "topic",
        "group",
        "mode",
        "queues",
        "type",
        "perm",
        "attributes",
        "topic_id",
        "group_id",
        "invisible_ms",
        "start",
        "start_ms",
    ),
    *("max_attempts", "retry", "fifo", "consume", "broadcast"),
)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["t", "new", "%DLQ%g", ""]),
    "group": st.sampled_from(["g", "new", "a b"]),
    "mode": st.sampled_from(["declare", "create", "alter", "other"]),
    "queues": st.integers(-1, 1_026),
    "type": st.sampled_from(["FIFO", "MIXED", "fifo"]),
    "perm": st.integers(-1, 8),
    "attributes": st.dictionaries(
        st.sampled_from(["a", "B.c-d_e", "", "ü", "x" * 65]), st.none() | st.text(max_size=300), max_size=20
    ),
    "retry": st.fixed_dictionaries(
        {"policy": st.sampled_from(["table", "custom", "exponential", "none"])},
        optional={
            "delays_ms": st.lists(st.integers(-1, 1 << 40), max_size=70),
            "initial_ms": st.integers(-1, 1 << 40),
            "multiplier_permille": st.sampled_from([0, 1_000, 1_001, 1_100, 2_000, 100_001]),
            "max_ms": st.integers(-1, 1 << 40),
        },
    ),
}
REQUESTS = st.dictionaries(st.sampled_from(FIELDS), st.nothing(), max_size=0) | st.fixed_dictionaries(
    {}, optional={name: VALUES if name not in GOOD else GOOD[name] | VALUES for name in FIELDS}
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(TOPIC_KINDS + GROUP_KINDS), request=REQUESTS | VALUES, raw=st.none() | st.binary(max_size=40)
)
def test_whatever_is_wrong_in_a_command_gets_a_typed_error_and_changes_nothing(
    kind: CommandKind, request: Any, raw: bytes | None
) -> None:
    """Wrong types, missing fields, numbers out of range, bytes that are no map; and what is taken survives a restart."""
    log = Log()
    log.create()
    before = packed(log.state)
    payload = encode_msgpack(request) if raw is None else raw
    verdict = log.apply(5, (kind, payload)).verdicts[0]
    if isinstance(verdict, TernError):
        assert verdict.status < 500, verdict
        assert packed(log.state) == before
    else:
        assert isinstance(verdict, dict)
        assert packed(again(log.state)) == packed(log.state)


def test_a_refused_attribute_is_refused_before_anything_has_changed() -> None:
    """Too many together is only seen when they are merged."""
    log = Log()
    ask(log, CommandKind.CREATE_TOPIC, topic="t", attributes={f"a{n}": "x" for n in range(16)})
    error = refused(log, CommandKind.CREATE_TOPIC, topic="t", queues=20, attributes={"one-more": "x"})
    assert (error.code, error.fields["pointer"]) == ("invalid-field", "/attributes")
