"""Clients as a part of the state machine: commands, silence, saved states, and commands that nobody should send."""

import random
from typing import Any

import pytest

from tern_broker.core import StateMachine, saving
from tern_wire.errors import TernError
from tern_wire.limits import MEMBER_EXPIRY_MS, QUEUE_LOCK_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.routing.membership import Role

HEARTBEAT = {"op": "heartbeat", "role": "consumer", "group": "g", "member": "a", "subscriptions": {"t": "*"}}
LOCK = {"op": "lock", "group": "g", "topic": "t", "member": "a", "queues": [0, 1]}


class Clerk:
    """A state machine with topic t (4 queues) and group g; each call is one entry."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.now_ms = 1_000
        self.apply(CommandKind.CREATE_TOPIC, {"topic": "t", "queues": 4})
        self.apply(CommandKind.CREATE_GROUP, {"group": "g", "invisible_ms": 60_000, "start": "earliest"})

    def apply(self, kind: CommandKind, request: Any) -> Any:
        """The verdict of one command."""
        body = b"".join(entry_parts(self.now_ms, [(kind, [encode_msgpack(request)])]))
        (verdict,) = self.state.apply(memoryview(body), 0, 1).verdicts
        return verdict

    def say(self, request: Any) -> Any:
        """The verdict of one MEMBERS."""
        return self.apply(CommandKind.MEMBERS, request)

    def restart(self) -> None:
        """From a saved state."""
        self.state = saving.load(b"".join(saving.encode(saving.take(self.state))))


def code(verdict: Any) -> str:
    """The code of an error; "" of a verdict that is none."""
    return verdict.code if isinstance(verdict, TernError) else ""


def test_a_commit_with_an_epoch_is_refused_once_another_member_has_had_the_queue() -> None:
    """Good while the lock is held, and after its time as long as nobody took the queue; all queues of the commit move, or none."""
    clerk = Clerk()
    clerk.say(HEARTBEAT)
    clerk.say({**HEARTBEAT, "member": "b"})

    def commit(epoch: int) -> Any:
        request = {"group": "g", "topic": "t", "offsets": {"0": 0, "1": 0}, "expected": {}, "epochs": {"0": epoch}}
        return clerk.apply(CommandKind.COMMIT_OFFSETS, request)

    mine = clerk.say(LOCK)["locked"]["0"]
    assert commit(mine) == {"offsets": {"0": 0, "1": 0}}
    assert code(commit(mine + 1)) == "queue-lock-lost"
    clerk.now_ms += QUEUE_LOCK_MS + 1
    assert commit(mine) == {"offsets": {"0": 0, "1": 0}}, "nobody took it"
    theirs = clerk.say({**LOCK, "member": "b"})["locked"]["0"]
    assert code(commit(mine)) == "queue-lock-lost"
    assert commit(theirs) == {"offsets": {"0": 0, "1": 0}}


def test_a_member_locks_queues_until_it_goes() -> None:
    """Leaving frees the locks at once; the next holder's epoch is greater. Only members may lock."""
    clerk = Clerk()
    assert code(clerk.say(LOCK)) == "member-not-found"
    assert clerk.say(HEARTBEAT)["expires_ms"] == clerk.now_ms + MEMBER_EXPIRY_MS
    first = clerk.say(LOCK)
    assert list(first["locked"]) == ["0", "1"]
    clerk.say({**HEARTBEAT, "member": "b"})
    assert clerk.say({**LOCK, "member": "b"})["held"] == {"0": "a", "1": "a"}
    assert clerk.say({"op": "leave", "role": "consumer", "group": "g", "member": "a"}) == {"left": True}
    second = clerk.say({**LOCK, "member": "b"})
    assert min(second["locked"].values()) > max(first["locked"].values())
    assert clerk.say({**LOCK, "op": "unlock", "member": "b"}) == {"unlocked": [0, 1]}


def test_a_silent_member_loses_its_place_and_its_locks_with_time_alone() -> None:
    """120 s without a heartbeat: an entry is worth its place then, and after it the queues are free."""
    clerk = Clerk()
    clerk.say(HEARTBEAT)
    clerk.say({**HEARTBEAT, "member": "b"})
    clerk.now_ms += MEMBER_EXPIRY_MS - 1
    clerk.say({**HEARTBEAT, "member": "b"})
    clerk.say(LOCK)
    assert not clerk.state.is_due(clerk.now_ms)
    clerk.now_ms += 1
    assert clerk.state.is_due(clerk.now_ms)
    locked = clerk.say({**LOCK, "member": "b"})
    assert list(locked["locked"]) == ["0", "1"]
    assert not clerk.state.clients.members.has(Role.CONSUMER, "g", "a")


def test_a_producers_name_frees_no_locks_of_the_consumer_of_that_name() -> None:
    """The same id in the producer group of the same name is another client."""
    clerk = Clerk()
    clerk.say(HEARTBEAT)
    clerk.say({**HEARTBEAT, "role": "producer"})
    clerk.say(LOCK)
    clerk.say({"op": "leave", "role": "producer", "group": "g", "member": "a"})
    assert sorted(clerk.state.clients.locks.holders(clerk.now_ms, "g", "t", 4)) == [0, 1]


def test_growth_of_a_topic_moves_the_generation_with_the_next_heartbeat() -> None:
    """So that clients ask for their assignments again."""
    clerk = Clerk()
    before = clerk.say(HEARTBEAT)["generation"]
    assert clerk.say(HEARTBEAT)["generation"] == before
    clerk.apply(CommandKind.CREATE_TOPIC, {"topic": "t", "queues": 8})
    assert clerk.say(HEARTBEAT)["generation"] > before


@pytest.mark.parametrize("seed", range(5))
def test_replicas_that_restart_decide_like_those_that_do_not(seed: int) -> None:
    """The digests, which are of all verdicts, stay the same."""
    rng = random.Random(seed)
    steady, restarting = Clerk(), Clerk()
    for _ in range(200):
        step_ms = rng.choice([1, 1_000, QUEUE_LOCK_MS // 2, MEMBER_EXPIRY_MS // 3])
        member = rng.choice("abcd")
        request = rng.choice(
            [
                {**HEARTBEAT, "member": member, "subscriptions": {"t": rng.choice(["*", "tags:A"])}},
                {**HEARTBEAT, "member": member, "role": "producer"},
                {"op": "leave", "role": "consumer", "group": "g", "member": member},
                {**LOCK, "member": member, "queues": rng.sample(range(4), 2)},
                {**LOCK, "op": "unlock", "member": member},
            ]
        )
        verdicts = []
        for clerk in (steady, restarting):
            clerk.now_ms += step_ms
            verdicts.append(clerk.say(request))
        assert str(verdicts[0]) == str(verdicts[1])
        assert steady.state.digest == restarting.state.digest
        if rng.random() < 0.2:
            restarting.restart()


JUNK: list[Any] = [
    None,
    True,
    -1,
    1 << 62,
    0.5,
    "",
    "a b",
    "\ud7ff",
    b"\xff",
    [],
    [0, 0, 9],
    [[]],
    ["x"],
    {},
    {"t": None},
    {1: 2},
]


@pytest.mark.parametrize("seed", range(30))
def test_commands_with_wrong_things_in_them_get_a_typed_error_and_change_nothing(seed: int) -> None:
    """Generated: fields missing, of other types, out of range, unknown names. The state stays; nothing is raised."""
    rng = random.Random(seed)
    clerk = Clerk()
    clerk.say(HEARTBEAT)
    clerk.say(LOCK)
    for _ in range(100):
        request: dict[Any, Any] = dict(
            rng.choice(
                [
                    {**HEARTBEAT, "strategy": "averagely", "room": "", "queues": {}, "address": "", "version": ""},
                    {"op": "leave", "role": "consumer", "group": "g", "member": "a"},
                    LOCK,
                    {**LOCK, "op": "unlock"},
                ]
            )
        )
        before = clerk.state.clients.pack()
        for name in rng.sample(list(request), rng.randrange(1, 3)):
            if rng.random() < 0.3:
                request.pop(name)
            else:
                request[name] = rng.choice(JUNK)
        verdict = clerk.say(request)
        assert isinstance(verdict, TernError | dict)
        if isinstance(verdict, TernError):
            assert verdict.status < 500
            assert clerk.state.clients.pack() == before
    bodies: tuple[Any, ...] = (None, 3, [], "x")
    for body in bodies:
        assert code(clerk.say(body)) == "link-body-malformed"
