"""Group commit: what is gathered, who is answered with what, also when leadership goes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.core.delivery.picking import Look
from tern_broker.proposal import Proposal
from tern_store import LogRot
from tern_wire.errors import DiskFull, NodeLacks, NotLeader, OutcomeUnknown, Overloaded, TernError
from tern_wire.limits import GROUP_COMMIT_SIZE_MAX_BYTES, PROPOSALS_MAX
from tern_wire.link.commands import CommandKind, read_entry
from tern_wire.link.requests import Parts
from tests.support.broker.entries import send_payload
from tests.support.broker.manual_proposer import ManualProposer

YEAR_MS = 365 * 86_400_000


def test_what_arrives_while_an_entry_is_in_flight_becomes_the_next_one() -> None:
    """Three sends, one entry; two more during its flight, one entry."""
    manual = ManualProposer()
    for _ in range(3):
        manual.send()
    manual.turn()
    manual.send()
    manual.send()
    manual.turn()
    assert len(manual.proposed) == 1
    manual.commit()
    assert [int(answer["offset"][0]) for answer in manual.answers] == [0, 1, 2]
    manual.turn()
    manual.commit()
    assert len(manual.proposed) == 2
    assert [int(answer["offset"][0]) for answer in manual.answers[3:]] == [3, 4]


def test_an_entry_gathers_no_more_than_its_limit_but_one_large_message_fits() -> None:
    """Half a limit and half a limit and a little: two entries."""
    manual = ManualProposer()
    manual.send(GROUP_COMMIT_SIZE_MAX_BYTES // 2 + 1)
    manual.send(GROUP_COMMIT_SIZE_MAX_BYTES // 2 + 1)
    manual.send(4 * GROUP_COMMIT_SIZE_MAX_BYTES)
    for expected in (1, 2, 3):
        manual.turn()
        assert len(manual.proposed) == expected
        manual.commit()
    assert len(manual.answers) == 3


def test_two_receives_of_one_entry_share_nothing_and_an_empty_one_costs_no_entry() -> None:
    """The picker remembers what the same entry has taken."""
    manual = ManualProposer()
    for _ in range(5):
        manual.send()
    manual.turn()
    manual.commit()
    manual.answers.clear()
    for _ in range(3):
        manual.receive(3)
    manual.turn()
    assert manual.answers == [[]], "the third found nothing and was answered at once"
    manual.commit()
    taken = [int(offset) for picks in manual.answers[1:] for pick in picks for offset in pick.offsets]
    assert taken == [0, 1, 2, 3, 4]


def test_losing_leadership_answers_everybody_once() -> None:
    """In flight: unknown. Not yet in an entry: nothing was stored."""
    manual = ManualProposer()
    manual.send()
    manual.turn()
    manual.send()
    manual.serving = False
    manual.proposer.role_changed()
    assert [OutcomeUnknown, NotLeader] == [type(answer) for answer in manual.answers]
    manual.commit()
    assert len(manual.answers) == 2
    manual.send()
    assert isinstance(manual.answers[-1], NotLeader)


def test_another_leaders_entry_in_our_place_means_that_nothing_was_stored() -> None:
    """Same index, later term."""
    manual = ManualProposer()
    manual.send()
    manual.turn()
    manual.proposer.applied(manual.index, 2, Applied())
    assert [NotLeader] == [type(answer) for answer in manual.answers]


@pytest.mark.parametrize(
    ("number", "refused"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EMFILE, NodeLacks), (errno.ENOMEM, NodeLacks)],
)
def test_what_the_log_cannot_take_is_refused_and_the_next_try_works(number: int, refused: type[TernError]) -> None:
    """A lack at a roll: nothing was stored, and the proposer is not stuck."""
    manual = ManualProposer()
    manual.failure = OSError(number, os.strerror(number))
    manual.send(GROUP_COMMIT_SIZE_MAX_BYTES)
    manual.send(GROUP_COMMIT_SIZE_MAX_BYTES)
    manual.turn()
    manual.failure = None
    manual.turn()
    manual.commit()
    assert [refused, "ndarray"] == [
        type(manual.answers[0]),
        type(manual.answers[1]).__name__,
    ]


def test_what_cannot_be_looked_up_now_is_refused_and_the_node_goes_on() -> None:
    """A file that cannot be opened while a proposal is built: its asker hears of it, the next ones are stored; damage ends the node."""
    manual = ManualProposer()
    errors: list[Exception] = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), LogRot(Path("log"), 0, "bad")]

    def build(_now_ms: int) -> Parts:
        raise errors.pop(0)

    for is_upkeep in (False, True):
        errors.insert(0, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        manual.proposer.submit(
            Proposal(
                CommandKind.SETTLE, 0, lambda verdict, _: manual.answers.append(verdict), build, is_upkeep=is_upkeep
            )
        )
        manual.turn()
        assert isinstance(manual.answers.pop(), NodeLacks)
    manual.send(100)
    manual.turn()
    manual.commit()
    assert type(manual.answers.pop()).__name__ == "ndarray"
    del errors[0]
    manual.proposer.submit(Proposal(CommandKind.SETTLE, 0, lambda verdict, _: manual.answers.append(verdict), build))
    with pytest.raises(LogRot):
        manual.turn()


def test_on_a_full_disk_acks_go_on_in_an_entry_of_their_own() -> None:
    """They had been gathered with sends: those are refused, the acks are stored in the reserve."""
    manual = ManualProposer()
    manual.failure, manual.has_reserve = OSError(28, "No space left on device"), True
    manual.send(100)
    manual.proposer.submit(
        Proposal(CommandKind.SETTLE, 0, lambda verdict, _: manual.answers.append(verdict), lambda _: [])
    )
    manual.send(100)
    manual.turn()
    assert [DiskFull, DiskFull] == [type(answer) for answer in manual.answers]
    manual.commit()
    assert manual.answers[2] == b""


def test_too_much_waiting_is_refused() -> None:
    """A bound on requests without an entry."""
    manual = ManualProposer()
    for _ in range(PROPOSALS_MAX + 1):
        manual.send()
    assert [Overloaded] == [type(answer) for answer in manual.answers]


def test_an_expired_lease_is_ticked_back_though_nobody_asks() -> None:
    """An entry without commands moves the group's time on."""
    manual = ManualProposer()
    manual.send()
    manual.turn()
    manual.commit()
    manual.receive()
    manual.turn()
    manual.commit()
    manual.proposer.tick()
    assert len(manual.proposed) == 2
    manual.mono_ms += 1001
    manual.proposer.tick()
    assert len(manual.proposed) == 3
    assert manual.commit().woken_topics == {manual.topic}


def test_what_waits_for_the_followers_goes_as_one_entry_when_they_have_caught_up() -> None:
    """Nothing is lost or refused meanwhile, and nothing is tried again before something has moved on."""
    manual = ManualProposer()
    manual.keep_up = False
    manual.send()
    manual.turn()
    manual.send()
    manual.turn()
    assert (manual.proposed, manual.answers) == ([], [])
    manual.proposer.resume()
    manual.turn()
    assert manual.proposed == []
    manual.keep_up = True
    assert manual.soon == []
    manual.proposer.resume()
    manual.turn()
    manual.commit()
    assert len(manual.proposed) == 1
    assert len(manual.answers) == 2


def test_a_fire_shares_its_entry_with_no_recall_and_recalls_share_one() -> None:
    """Both say what waits before their entry: so nothing else in it may change that."""
    manual = ManualProposer()
    kinds = [
        CommandKind.CANCEL_TIMER,
        CommandKind.CANCEL_TIMER,
        CommandKind.FIRE,
        CommandKind.SEND,
        CommandKind.CANCEL_TIMER,
    ]
    for kind in kinds:
        manual.proposer.submit(Proposal(kind, 10, lambda _verdict, _picks: None, build=lambda _now: [b""]))
    entries: list[list[int]] = []
    while len(entries) < 3:
        manual.turn()
        _, commands = read_entry(memoryview(manual.proposed[-1][2]))
        entries.append([command.kind for command in commands])
        manual.commit()
    assert entries == [kinds[:2], kinds[2:4], kinds[4:]]


def wants_everything() -> Look:
    """A filter that lets everything through."""
    return lambda entries: np.ones(len(entries), bool)


def kinds(body: bytes) -> list[int]:
    """What an entry asks for."""
    return [command.kind for command in read_entry(memoryview(body))[1]]


def test_sends_do_not_wait_for_receives_that_look() -> None:
    """Five receives with a filter, then a send: it goes with the first entry, which looks for two of them; the others follow in their order."""
    manual = ManualProposer()
    for _ in range(10):
        manual.send()
    manual.turn()
    manual.commit()
    manual.answers.clear()
    for _ in range(5):
        manual.receive(1, wants_everything)
    manual.send()
    entries = []
    for _ in range(3):
        manual.turn()
        manual.commit()
        entries.append(kinds(manual.proposed[-1][2]))
    lease, send = CommandKind.LEASE, CommandKind.SEND
    assert entries == [[send, lease, lease], [lease, lease], [lease]]
    got = [int(offset) for picks in manual.answers[1:] for pick in picks for offset in pick.offsets]
    assert got == [0, 1, 2, 3, 4]
    assert manual.proposer.waiting == 0


def test_receives_that_look_make_no_send_late() -> None:
    """Very many of them wait for very long: a send is taken, and what waits in all is bounded still."""
    manual = ManualProposer()
    manual.send()
    manual.turn()
    manual.commit()
    manual.answers.clear()
    for _ in range(PROPOSALS_MAX - 1):
        manual.receive(1, wants_everything)
    manual.mono_ms += 60_000
    manual.send()
    assert not manual.answers, "nothing was refused"
    manual.send()
    assert [type(answer) for answer in manual.answers] == [Overloaded]
    manual.turn()
    manual.commit()
    assert kinds(manual.proposed[-1][2])[0] == CommandKind.SEND


def test_after_a_full_restart_a_leader_waits_until_the_members_clocks_say_what_time_it_is() -> None:
    """Requests wait meanwhile. A member that stays silent is waited for 3 s; less than a majority of clocks for ever."""
    for members, walls_ms, waits_ms in ((3, [5_000], 1_000_000), (3, [5_000, YEAR_MS], 3_000), (3, [5_000, 5_001], 0)):
        manual = ManualProposer()
        manual.members, manual.walls_ms = members, walls_ms
        manual.send()
        for now_ms in range(0, waits_ms, 1_000):
            manual.mono_ms = now_ms
            manual.proposer.tick()
            manual.proposer.resume()
            manual.turn()
            assert not manual.proposed
            assert manual.proposer.now_ms() == manual.log.state.now_ms, "what is applied"
        manual.walls_ms = walls_ms if len(walls_ms) > 1 else [5_000, 5_000, YEAR_MS]
        manual.mono_ms = waits_ms
        manual.proposer.resume()
        manual.turn()
        assert read_entry(memoryview(manual.proposed[-1][2]))[0] == 5_000
        manual.commit()


def test_a_leader_that_has_followed_the_group_does_not_wait() -> None:
    """What it knows is enough, whatever clocks say."""
    manual = ManualProposer()
    manual.members, manual.walls_ms, manual.expected_ms = 3, [YEAR_MS], 9_000
    manual.send()
    manual.turn()
    assert read_entry(memoryview(manual.proposed[-1][2]))[0] == 9_000


def test_what_needs_nothing_of_the_store_is_answered_before_it_has_the_messages() -> None:
    """Once each: early verdicts before `applied`, the others with it. Errors, other entries and terms are never early."""
    manual = ManualProposer()
    told: list[str] = []

    def submit(name: str, *, is_early: bool, topic: int) -> None:
        payload = send_payload((topic, 0, b"m", b""))
        proposal = Proposal(
            CommandKind.SEND, 100, lambda *_: told.append(name), build=lambda _: [payload], is_early=lambda _: is_early
        )
        manual.proposer.submit(proposal)

    submit("early", is_early=True, topic=manual.topic)
    submit("late", is_early=False, topic=manual.topic)
    manual.proposer.submit(
        Proposal(
            CommandKind.ALTER_TOPIC, 1, lambda *_: told.append("error"), build=lambda _: [b"?"], is_early=lambda _: True
        )
    )
    manual.turn()
    index, term, body = manual.proposed[-1]
    applied = manual.log.state.apply(memoryview(body), manual.log.position, 1)
    manual.proposer.flush_answers = lambda: told.append("flushed")
    for other in ((index - 1, term), (index, term + 1)):
        manual.proposer.decided(*other, applied)
    assert not told
    manual.proposer.decided(index, term, applied)
    assert told == ["early", "flushed"]
    manual.proposer.applied(index, term, applied)
    assert told == ["early", "flushed", "late", "error"]
    manual.proposer.applied(index, term, applied)
    manual.proposer.decided(index, term, applied)
    assert told == ["early", "flushed", "late", "error"]


def test_an_early_answer_that_raises_keeps_no_other_waiting() -> None:
    """It is refused, as any answer that raises, and the others get theirs."""
    manual = ManualProposer()
    told: list[object] = []

    def fail(verdict: object, _: object) -> None:
        told.append(verdict)
        if not isinstance(verdict, TernError):
            raise ZeroDivisionError

    payload = send_payload((manual.topic, 0, b"m", b""))
    for done in (fail, lambda *_: told.append("good")):
        manual.proposer.submit(
            Proposal(CommandKind.SEND, 100, done, build=lambda _: [payload], is_early=lambda _: True)
        )
    manual.turn()
    index, term, body = manual.proposed[-1]
    manual.proposer.decided(index, term, manual.log.state.apply(memoryview(body), manual.log.position, 1))
    assert [type(each).__name__ for each in told] == ["ndarray", "TernError", "str"]
