"""Commands about transactions that no leader of ours writes: typed refusals, and the state is what it was."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tern_broker.core import StateMachine, saving
from tern_wire.errors import (
    LinkBodyMalformed,
    TernError,
)
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.transactions import (
    BY_CLIENT,
    BY_HAND,
    COMMIT,
    END_ROW,
)
from tests.support.broker.half_messages import TransactionLog, facts


def again(state: StateMachine) -> StateMachine:
    """Saved and loaded."""
    return saving.load(b"".join(saving.encode(saving.take(state))))


KINDS = (
    *(CommandKind.END_TRANSACTIONS, CommandKind.CLAIM_CHECKS, CommandKind.REPORT_CHECKS),
    *(CommandKind.RESOLVE_TRANSACTION, CommandKind.ALTER_PRODUCER_GROUP, CommandKind.DELETE_PRODUCER_GROUP),
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=8)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "producer_group": st.sampled_from(["p", "", "new", "a b"]),
    "create": st.booleans(),
    "number": st.integers(0, 9 << 20),
    "producer_group_id": st.integers(-1, 3),
    "outcome": st.integers(0, 3),
    "reason": st.text(max_size=300),
    "checker": st.text(max_size=70),
    "max": st.integers(-1, 300),
    "claim_ms": st.integers(-1, 200_000),
    "max_bytes": st.integers(-1, 1 << 23),
    "reports": st.lists(
        st.tuples(st.integers(0, 9 << 20), st.integers(0, 3), st.text(max_size=40), st.integers(-1, 99)), max_size=3
    ),
    "check_url": st.text(max_size=20),
    "check_secret": st.sampled_from(["", "whsec_AAAA", "secret"]),
    "timeout_ms": st.integers(-1, 40_000),
    "max_checks": st.integers(-1, 101),
    "check_after_ms": st.integers(-1, 3_600_001),
    "check_interval_ms": st.integers(-1, 3_600_001),
    "include_body": st.booleans(),
}
REQUESTS = st.fixed_dictionaries(
    {}, optional={name: good | VALUES for name, good in GOOD.items()}
) | st.fixed_dictionaries(GOOD)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(KINDS), request=REQUESTS | VALUES, raw=st.none() | st.binary(max_size=96))
def test_whatever_is_wrong_in_a_command_gets_a_typed_error_and_changes_nothing(
    kind: CommandKind, request: Any, raw: bytes | None
) -> None:
    """Wrong types, missing fields, numbers out of range, bytes that are no map; and what is taken survives a restart."""
    log = TransactionLog(check_after_ms=100)
    log.begin_one(1_000)
    log.apply(2_000)
    before = facts(log.state)
    verdict = log.apply(2_000, (kind, encode_msgpack(request) if raw is None else raw)).verdicts[0]
    if isinstance(verdict, TernError):
        assert verdict.status < 500, verdict
        assert facts(log.state) == before
    else:
        assert facts(again(log.state)) == facts(log.state)


@pytest.mark.parametrize(
    "rows",
    [
        END_ROW.pack(1, 0, 1, 0, BY_CLIENT),
        END_ROW.pack(1, 0, 1, 3, BY_CLIENT),
        END_ROW.pack(1, 0, 1, COMMIT, BY_HAND),
        END_ROW.pack(1, 0, 1, COMMIT, 0),
        END_ROW.pack(1, 0, 1, COMMIT, BY_CLIENT)[:-1],
    ],
)
def test_an_end_that_no_leader_writes_refuses_the_command_whole(rows: bytes) -> None:
    """Also what would have been fine beside it; ends by hand have a command of their own."""
    log = TransactionLog()
    number = log.begin_one(1_000)
    good = END_ROW.pack(number, 0, log.p, COMMIT, BY_CLIENT)
    assert isinstance(log.apply(2_000, (CommandKind.END_TRANSACTIONS, good + rows)).verdicts[0], LinkBodyMalformed)
    assert list(log.state.transactions.table.slots) == [number]
