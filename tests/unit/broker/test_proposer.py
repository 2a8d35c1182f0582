"""Group commit: what is gathered, who is answered with what, also when leadership goes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.core.delivery.picking import Look
from tern_broker.proposer import Proposal
from tern_store import LogRot
from tern_wire.errors import DiskFull, NodeLacks, NotLeader, OutcomeUnknown, Overloaded, TernError
from tern_wire.limits import GROUP_COMMIT_SIZE_MAX_BYTES, PROPOSALS_MAX
from tern_wire.link.commands import CommandKind, read_entry
from tern_wire.link.requests import Parts
from tests.support.broker.proposer_desk import Desk

YEAR_MS = 365 * 86_400_000


def test_what_arrives_while_an_entry_is_in_flight_becomes_the_next_one() -> None:
    """Three sends, one entry; two more during its flight, one entry."""
    desk = Desk()
    for _ in range(3):
        desk.send()
    desk.turn()
    desk.send()
    desk.send()
    desk.turn()
    assert len(desk.proposed) == 1
    desk.commit()
    assert [int(answer["offset"][0]) for answer in desk.answers] == [0, 1, 2]
    desk.turn()
    desk.commit()
    assert len(desk.proposed) == 2
    assert [int(answer["offset"][0]) for answer in desk.answers[3:]] == [3, 4]


def test_an_entry_gathers_no_more_than_its_limit_but_one_large_message_fits() -> None:
    """Half a limit and half a limit and a little: two entries."""
    desk = Desk()
    desk.send(GROUP_COMMIT_SIZE_MAX_BYTES // 2 + 1)
    desk.send(GROUP_COMMIT_SIZE_MAX_BYTES // 2 + 1)
    desk.send(4 * GROUP_COMMIT_SIZE_MAX_BYTES)
    for expected in (1, 2, 3):
        desk.turn()
        assert len(desk.proposed) == expected
        desk.commit()
    assert len(desk.answers) == 3


def test_two_receives_of_one_entry_share_nothing_and_an_empty_one_costs_no_entry() -> None:
    """The picker remembers what the same entry has taken."""
    desk = Desk()
    for _ in range(5):
        desk.send()
    desk.turn()
    desk.commit()
    desk.answers.clear()
    for _ in range(3):
        desk.receive(3)
    desk.turn()
    assert desk.answers == [[]], "the third found nothing and was answered at once"
    desk.commit()
    taken = [int(offset) for picks in desk.answers[1:] for pick in picks for offset in pick.offsets]
    assert taken == [0, 1, 2, 3, 4]


def test_losing_leadership_answers_everybody_once() -> None:
    """In flight: unknown. Not yet in an entry: nothing was stored."""
    desk = Desk()
    desk.send()
    desk.turn()
    desk.send()
    desk.serving = False
    desk.proposer.role_changed()
    assert [OutcomeUnknown, NotLeader] == [type(answer) for answer in desk.answers]
    desk.commit()
    assert len(desk.answers) == 2
    desk.send()
    assert isinstance(desk.answers[-1], NotLeader)


def test_another_leaders_entry_in_our_place_means_that_nothing_was_stored() -> None:
    """Same index, later term."""
    desk = Desk()
    desk.send()
    desk.turn()
    desk.proposer.applied(desk.index, 2, Applied())
    assert [NotLeader] == [type(answer) for answer in desk.answers]


@pytest.mark.parametrize(
    ("number", "refused"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EMFILE, NodeLacks), (errno.ENOMEM, NodeLacks)],
)
def test_what_the_log_cannot_take_is_refused_and_the_next_try_works(number: int, refused: type[TernError]) -> None:
    """A lack at a roll: nothing was stored, and the proposer is not stuck."""
    desk = Desk()
    desk.failure = OSError(number, os.strerror(number))
    desk.send(GROUP_COMMIT_SIZE_MAX_BYTES)
    desk.send(GROUP_COMMIT_SIZE_MAX_BYTES)
    desk.turn()
    desk.failure = None
    desk.turn()
    desk.commit()
    assert [refused, "ndarray"] == [
        type(desk.answers[0]),
        type(desk.answers[1]).__name__,
    ]


def test_what_cannot_be_looked_up_now_is_refused_and_the_node_goes_on() -> None:
    """A file that cannot be opened while a proposal is built: its asker hears of it, the next ones are stored; damage ends the node."""
    desk = Desk()
    errors: list[Exception] = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), LogRot(Path("log"), 0, "bad")]

    def build(_now_ms: int) -> Parts:
        raise errors.pop(0)

    for is_upkeep in (False, True):
        errors.insert(0, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        desk.proposer.submit(
            Proposal(CommandKind.SETTLE, 0, lambda verdict, _: desk.answers.append(verdict), build, is_upkeep=is_upkeep)
        )
        desk.turn()
        assert isinstance(desk.answers.pop(), NodeLacks)
    desk.send(100)
    desk.turn()
    desk.commit()
    assert type(desk.answers.pop()).__name__ == "ndarray"
    del errors[0]
    desk.proposer.submit(Proposal(CommandKind.SETTLE, 0, lambda verdict, _: desk.answers.append(verdict), build))
    with pytest.raises(LogRot):
        desk.turn()


def test_on_a_full_disk_acks_go_on_in_an_entry_of_their_own() -> None:
    """They had been gathered with sends: those are refused, the acks are stored in the reserve."""
    desk = Desk()
    desk.failure, desk.has_reserve = OSError(28, "No space left on device"), True
    desk.send(100)
    desk.proposer.submit(Proposal(CommandKind.SETTLE, 0, lambda verdict, _: desk.answers.append(verdict), lambda _: []))
    desk.send(100)
    desk.turn()
    assert [DiskFull, DiskFull] == [type(answer) for answer in desk.answers]
    desk.commit()
    assert desk.answers[2] == b""


def test_too_much_waiting_is_refused() -> None:
    """A bound on requests without an entry."""
    desk = Desk()
    for _ in range(PROPOSALS_MAX + 1):
        desk.send()
    assert [Overloaded] == [type(answer) for answer in desk.answers]


def test_an_expired_lease_is_ticked_back_though_nobody_asks() -> None:
    """An entry without commands moves the group's time on."""
    desk = Desk()
    desk.send()
    desk.turn()
    desk.commit()
    desk.receive()
    desk.turn()
    desk.commit()
    desk.proposer.tick()
    assert len(desk.proposed) == 2
    desk.mono_ms += 1001
    desk.proposer.tick()
    assert len(desk.proposed) == 3
    assert desk.commit().woken_topics == {desk.topic}


def test_what_waits_for_the_followers_goes_as_one_entry_when_they_have_caught_up() -> None:
    """Nothing is lost or refused meanwhile, and nothing is tried again before something has moved on."""
    desk = Desk()
    desk.keep_up = False
    desk.send()
    desk.turn()
    desk.send()
    desk.turn()
    assert (desk.proposed, desk.answers) == ([], [])
    desk.proposer.resume()
    desk.turn()
    assert desk.proposed == []
    desk.keep_up = True
    assert desk.soon == []
    desk.proposer.resume()
    desk.turn()
    desk.commit()
    assert len(desk.proposed) == 1
    assert len(desk.answers) == 2


def test_a_fire_shares_its_entry_with_no_recall_and_recalls_share_one() -> None:
    """Both say what waits before their entry: so nothing else in it may change that."""
    desk = Desk()
    kinds = [
        CommandKind.CANCEL_TIMER,
        CommandKind.CANCEL_TIMER,
        CommandKind.FIRE,
        CommandKind.SEND,
        CommandKind.CANCEL_TIMER,
    ]
    for kind in kinds:
        desk.proposer.submit(Proposal(kind, 10, lambda _verdict, _picks: None, build=lambda _now: [b""]))
    entries: list[list[int]] = []
    while len(entries) < 3:
        desk.turn()
        _, commands = read_entry(memoryview(desk.proposed[-1][2]))
        entries.append([command.kind for command in commands])
        desk.commit()
    assert entries == [kinds[:2], kinds[2:4], kinds[4:]]


def wants_everything() -> Look:
    """A filter that lets everything through."""
    return lambda entries: np.ones(len(entries), bool)


def kinds(body: bytes) -> list[int]:
    """What an entry asks for."""
    return [command.kind for command in read_entry(memoryview(body))[1]]


def test_sends_do_not_wait_for_receives_that_look() -> None:
    """Five receives with a filter, then a send: it goes with the first entry, which looks for two of them; the others follow in their order."""
    desk = Desk()
    for _ in range(10):
        desk.send()
    desk.turn()
    desk.commit()
    desk.answers.clear()
    for _ in range(5):
        desk.receive(1, wants_everything)
    desk.send()
    entries = []
    for _ in range(3):
        desk.turn()
        desk.commit()
        entries.append(kinds(desk.proposed[-1][2]))
    lease, send = CommandKind.LEASE, CommandKind.SEND
    assert entries == [[send, lease, lease], [lease, lease], [lease]]
    got = [int(offset) for picks in desk.answers[1:] for pick in picks for offset in pick.offsets]
    assert got == [0, 1, 2, 3, 4]
    assert desk.proposer.waiting == 0


def test_receives_that_look_make_no_send_late() -> None:
    """Very many of them wait for very long: a send is taken, and what waits in all is bounded still."""
    desk = Desk()
    desk.send()
    desk.turn()
    desk.commit()
    desk.answers.clear()
    for _ in range(PROPOSALS_MAX - 1):
        desk.receive(1, wants_everything)
    desk.mono_ms += 60_000
    desk.send()
    assert not desk.answers, "nothing was refused"
    desk.send()
    assert [type(answer) for answer in desk.answers] == [Overloaded]
    desk.turn()
    desk.commit()
    assert kinds(desk.proposed[-1][2])[0] == CommandKind.SEND


def test_after_a_full_restart_a_leader_waits_until_the_members_clocks_say_what_time_it_is() -> None:
    """Requests wait meanwhile. A member that stays silent is waited for 3 s; less than a majority of clocks for ever."""
    for members, walls_ms, waits_ms in ((3, [5_000], 1_000_000), (3, [5_000, YEAR_MS], 3_000), (3, [5_000, 5_001], 0)):
        desk = Desk()
        desk.members, desk.walls_ms = members, walls_ms
        desk.send()
        for now_ms in range(0, waits_ms, 1_000):
            desk.mono_ms = now_ms
            desk.proposer.tick()
            desk.proposer.resume()
            desk.turn()
            assert not desk.proposed
            assert desk.proposer.now_ms() == desk.log.state.now_ms, "what is applied"
        desk.walls_ms = walls_ms if len(walls_ms) > 1 else [5_000, 5_000, YEAR_MS]
        desk.mono_ms = waits_ms
        desk.proposer.resume()
        desk.turn()
        assert read_entry(memoryview(desk.proposed[-1][2]))[0] == 5_000
        desk.commit()


def test_a_leader_that_has_followed_the_group_does_not_wait() -> None:
    """What it knows is enough, whatever clocks say."""
    desk = Desk()
    desk.members, desk.walls_ms, desk.expected_ms = 3, [YEAR_MS], 9_000
    desk.send()
    desk.turn()
    assert read_entry(memoryview(desk.proposed[-1][2]))[0] == 9_000
