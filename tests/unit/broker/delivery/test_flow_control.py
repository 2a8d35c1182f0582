"""Flow control at a broker: what waits is bounded, sends are refused before acks are, and a slow consumer slows no producer."""

import numpy as np
import pytest

from tern_broker.core.delivery import picking
from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.proposal import Proposal
from tern_wire.errors import LimitReached, Overloaded
from tern_wire.limits import (
    PROPOSALS_MAX,
    PROPOSALS_SIZE_MAX_BYTES,
    SEND_QUEUE_AGE_MAX_MS,
    SEND_QUEUE_REQUESTS_FREE,
    SEND_QUEUE_SIZE_FREE_BYTES,
)
from tern_wire.link.commands import CommandKind
from tests.support.broker.manual_proposer import ManualProposer

MUCH = SEND_QUEUE_REQUESTS_FREE + 1


def in_flight() -> ManualProposer:
    """A manual with one entry under way, behind which everything waits."""
    manual = ManualProposer()
    manual.send()
    manual.turn()
    return manual


@pytest.mark.parametrize(
    ("count", "size_bytes"), [(MUCH, 100), (2, SEND_QUEUE_SIZE_FREE_BYTES // 2 + 1)], ids=["requests", "bytes"]
)
def test_a_send_behind_too_much_that_is_too_old_is_refused_and_all_others_are_not(count: int, size_bytes: int) -> None:
    """`overloaded` names the budget; settles, receives and administration wait with the rest; what waited is stored."""
    manual = in_flight()
    for _ in range(count):
        manual.send(size_bytes)
    manual.mono_ms += SEND_QUEUE_AGE_MAX_MS + 1
    assert manual.answers == []
    manual.send()
    (refused,) = manual.answers
    assert isinstance(refused, Overloaded)
    assert refused.fields["what"] == "the time that sends wait in broker group 'broker-a'"
    assert manual.proposer.refused == {refused.fields["what"]: 1}
    manual.other(CommandKind.SETTLE)
    manual.other(CommandKind.CREATE_TOPIC)
    manual.receive()
    assert (len(manual.answers), manual.proposer.waiting) == (1, count + 3)
    manual.answers.clear()
    while len(manual.answers) < count + 4:
        manual.commit()
        manual.turn()
    stored = [answer for answer in manual.answers if isinstance(answer, np.ndarray)]
    assert [int(answer["offset"][0]) for answer in stored] == list(range(count + 1))


def test_a_slow_disk_alone_refuses_no_trickle() -> None:
    """One fdatasync of a minute: everything that came meanwhile goes as one entry, and is stored."""
    manual = in_flight()
    for _ in range(60):
        manual.mono_ms += 1_000
        manual.send()
    manual.commit()
    manual.turn()
    manual.commit()
    assert len(manual.proposed) == 2
    assert [int(answer["offset"][0]) for answer in manual.answers] == list(range(61))


def test_a_burst_alone_refuses_nothing() -> None:
    """Much that is young: it is gone before it is old."""
    manual = in_flight()
    for _ in range(4 * MUCH):
        manual.send()
    manual.mono_ms += SEND_QUEUE_AGE_MAX_MS
    manual.send()
    assert manual.answers == []


def test_sends_are_taken_again_when_the_old_ones_have_their_entry() -> None:
    """Also while followers are waited for, nothing but newcomers is refused."""
    manual = ManualProposer()
    manual.keep_up = False
    for _ in range(MUCH):
        manual.send()
    manual.turn()
    manual.mono_ms += SEND_QUEUE_AGE_MAX_MS + 1
    manual.send()
    assert [type(answer) for answer in manual.answers] == [Overloaded]
    manual.keep_up = True
    manual.proposer.resume()
    manual.turn()
    manual.send()
    assert [type(answer) for answer in manual.answers] == [Overloaded]
    manual.commit()
    manual.turn()
    manual.commit()
    assert [type(answer) for answer in manual.answers[1:]] == [np.ndarray] * (MUCH + 1)


def test_what_waits_is_bounded_for_every_kind() -> None:
    """In number and in bytes; each names what is used up."""
    manual = in_flight()
    for _ in range(PROPOSALS_MAX):
        manual.other()
    manual.other()
    assert [answer.fields["what"] for answer in manual.answers] == ["requests that wait in broker group 'broker-a'"]
    manual = in_flight()
    manual.send(PROPOSALS_SIZE_MAX_BYTES + 1)
    manual.other()
    assert [answer.fields["what"] for answer in manual.answers] == [
        "bytes of requests that wait in broker group 'broker-a'"
    ]


def test_a_consumer_that_never_settles_slows_no_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leases are full and it asks on and on: it is told so, and every send goes with the next entry."""
    monkeypatch.setattr(picking, "LEASED_PER_QUEUE_MAX", 3)
    manual = ManualProposer()
    refusals: list[object] = []
    request = ReceiveRequest(
        group=manual.log.state.names.groups["g"],
        topic=manual.log.state.names.topics["t"],
        messages_max=10,
        size_max_bytes=1 << 20,
        invisible_ms=60_000,
        first_queue=0,
    )
    for number in range(50):
        manual.send()
        for _ in range(20):
            manual.proposer.submit(
                Proposal(CommandKind.LEASE, 64, lambda verdict, _: refusals.append(verdict), receive=request)
            )
        manual.send()
        manual.mono_ms += SEND_QUEUE_AGE_MAX_MS + 1
        manual.turn()
        manual.commit()
        assert len(manual.answers) == 2 * number + 2
    assert all(isinstance(answer, np.ndarray) for answer in manual.answers)
    assert sum(isinstance(refusal, LimitReached) for refusal in refusals) > 900
    assert (manual.proposer.refused, len(manual.proposed)) == ({}, 50)
