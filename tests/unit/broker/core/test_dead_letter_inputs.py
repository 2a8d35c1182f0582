"""Commands about dead letters with anything in them: a typed error or nothing, never an exception, and the state as it was."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tern_broker.core import saving
from tern_wire.dead_letters import Selection
from tern_wire.errors import TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import BURY_ROWS, NOT_DYING
from tests.support.broker.entries import Log

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    1 << 62,
    -(1 << 62),
    1.5,
    "",
    "0",
    "g",
    "t",
    b"g",
    [],
    {},
    [[]],
    [1, 2],
    "\x00" * 9,
]
KINDS = (CommandKind.REDRIVE, CommandKind.PURGE, CommandKind.DEAD_LETTER)


def bodies() -> st.SearchStrategy[dict[str, Any]]:
    """Maps with the right keys and anything behind them, and lists of rows with anything in them."""
    odd = st.sampled_from(ODD)
    rows = st.lists(st.one_of(odd, st.lists(odd, min_size=3, max_size=7)), max_size=3)
    selection = st.one_of(odd, st.fixed_dictionaries(dict.fromkeys(Selection().pack(), odd)))
    return st.fixed_dictionaries(
        {"op": st.sampled_from(["start", "step", "cancel", "", 7]), "task": st.sampled_from(["a", "b", 7, None])},
        optional={
            **dict.fromkeys(("group", "rate", "dry_run", "at", "next", "skipped"), odd),
            "rows": rows,
            "selection": selection,
        },
    )


def state_of(log: Log) -> bytes:
    """Everything that is replicated."""
    return b"".join(saving.encode(saving.take(log.state)))


def prepared() -> Log:
    """A leased message, one that is dying, a dead letter, and a running task."""
    log = Log()
    topic, group = log.create()
    log.send(2, *((topic, 0, b"%d" % number, b"") for number in range(3)))
    ((_, lease, _),) = log.receive(3, invisible_ms=1_000_000)
    rows = [[group, topic, 0, offset, lease, "why"] for offset in range(2)]
    log.apply(4, (CommandKind.DEAD_LETTER, encode_msgpack({"rows": rows})))
    dead = log.state.dead_letters.topics.of(group)
    assert dead is not None
    buried = np.array([(group, topic, 0, 9, 0, 100, 0, 0, dead.topic_id)], BURY_ROWS).tobytes()
    log.apply(5, (CommandKind.BURY, SEND_HEAD.pack(1, 0) + buried))
    start = {"op": "start", "task": "a", "group": "g", "rate": 1, "dry_run": False, "selection": Selection().pack()}
    log.apply(6, (CommandKind.REDRIVE, encode_msgpack(start)))
    assert log.state.redriving.tasks["a"].state == "running"
    return log


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(KINDS), body=bodies())
def test_a_command_that_is_refused_has_changed_nothing(kind: CommandKind, body: dict[str, Any]) -> None:
    """Also when the error comes in the middle of what it asks."""
    log = prepared()
    before, digest = state_of(log), log.state.digest
    verdict = log.apply(log.state.now_ms, (kind, encode_msgpack(body))).verdicts[0]
    if isinstance(verdict, TernError):
        assert state_of(log).replace(encode_msgpack(log.state.digest), encode_msgpack(digest)) == before


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", encode_msgpack([]), encode_msgpack({}), encode_msgpack({"rows": 7}), b"\xff" * 100]
)
@pytest.mark.parametrize("kind", [*KINDS, CommandKind.BURY])
def test_what_is_no_such_command_is_refused(kind: CommandKind, payload: bytes) -> None:
    """A TernError as the verdict."""
    log = prepared()
    assert isinstance(log.apply(9, (kind, payload)).verdicts[0], TernError)


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.integers(0, (1 << 32) - 1), min_size=5, max_size=5), offset=st.integers(-5, 1 << 60))
def test_a_burial_of_what_is_not_dying_adds_nothing(numbers: list[int], offset: int) -> None:
    """Whatever group, topic, queue, size and dead-letter topic the row names."""
    log = prepared()
    group, topic, queue, size, dead = numbers
    row = np.array([(group, topic, queue, size, offset, 5, 7, 0, dead)], BURY_ROWS).tobytes()
    applied = log.apply(9, (CommandKind.BURY, SEND_HEAD.pack(1, 0) + row))
    assert applied.verdicts == [bytes([NOT_DYING])]
    assert applied.appends == []
