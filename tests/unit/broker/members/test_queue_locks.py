"""Locks of queues: one holder at a time, epochs that grow, expiry, and limits."""

import random

import pytest

from tern_broker.core.members import queue_locks as locks_module
from tern_broker.core.members.queue_locks import QueueLocks
from tern_wire.errors import LimitReached
from tern_wire.limits import QUEUE_LOCK_MS
from tern_wire.link.codec import decode_msgpack, encode_msgpack


def test_a_lock_is_the_first_ones_until_it_ends() -> None:
    """Each queue on its own; the holder keeps its epoch, the next one has a greater one."""
    locks = QueueLocks()
    first = locks.lock(0, "g", "t", [0, 1, 1], "a")
    assert (sorted(first["locked"]), first["held"], first["until_ms"]) == (["0", "1"], {}, QUEUE_LOCK_MS)
    second = locks.lock(1, "g", "t", [1, 2], "b")
    assert (list(second["locked"]), second["held"]) == (["2"], {"1": "a"})
    renewed = locks.lock(QUEUE_LOCK_MS - 1, "g", "t", [1], "a")
    assert renewed["locked"]["1"] == first["locked"]["1"]
    assert locks.lock(QUEUE_LOCK_MS, "g", "t", [1], "b")["held"] == {"1": "a"}
    taken = locks.lock(2 * QUEUE_LOCK_MS - 1, "g", "t", [1], "b")
    assert taken["locked"]["1"] > first["locked"]["1"]
    assert locks.lock(2 * QUEUE_LOCK_MS, "g", "t", [1], "a")["held"] == {"1": "b"}


def test_a_holder_that_renews_late_keeps_its_epoch_if_nobody_had_the_queue() -> None:
    """What it read and does meanwhile is still in order."""
    locks = QueueLocks()
    epoch = locks.lock(0, "g", "t", [0], "a")["locked"]["0"]
    assert locks.holders(10 * QUEUE_LOCK_MS, "g", "t", 1) == {}
    assert locks.lock(10 * QUEUE_LOCK_MS, "g", "t", [0], "a")["locked"]["0"] == epoch


def test_groups_and_topics_do_not_share_locks() -> None:
    """The same queue number in another topic, or of another group, is another lock."""
    locks = QueueLocks()
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        assert list(locks.lock(0, group, topic, [0], group + topic)["locked"]) == ["0"]


def test_unlock_gives_up_only_ones_own_and_a_member_that_goes_gives_up_all() -> None:
    """The next holder's epoch is greater in both cases."""
    locks = QueueLocks()
    epochs = locks.lock(0, "g", "t", [0, 1], "a")["locked"]
    locks.lock(0, "g", "t", [2], "b")
    assert locks.unlock("g", "t", [2, 1, 7], "a") == [1]
    assert locks.lock(1, "g", "t", [1], "b")["locked"]["1"] > epochs["1"]
    locks.release("g", "a")
    locks.release("g", "nobody")
    assert locks.lock(1, "g", "t", [0], "b")["locked"]["0"] > epochs["0"]
    assert {queue: lock.member for queue, lock in locks.holders(1, "g", "t", 3).items()} == {0: "b", 1: "b", 2: "b"}


@pytest.mark.parametrize("seed", range(20))
def test_epochs_name_one_holder_for_ever_and_grow_with_each_queue(seed: int) -> None:
    """Random members lock, unlock, die and pause; restarts in between change nothing."""
    rng = random.Random(seed)
    locks, now_ms = QueueLocks(), 0
    holder_of: dict[int, tuple[int, str]] = {}
    newest = dict.fromkeys(range(4), 0)
    for _ in range(500):
        now_ms += rng.randrange(QUEUE_LOCK_MS // 3)
        member, wanted = rng.choice("abc"), rng.sample(range(4), rng.randrange(1, 4))
        match rng.randrange(8):
            case 0:
                locks.release("g", member)
            case 1:
                locks.unlock("g", "t", wanted, member)
            case 2:
                packed = locks.pack()
                locks = QueueLocks()
                locks.unpack(decode_msgpack(encode_msgpack(packed)))
                assert locks.pack() == packed
            case _:
                answer = locks.lock(now_ms, "g", "t", wanted, member)
                assert sorted(int(queue) for queue in (*answer["locked"], *answer["held"])) == sorted(wanted)
                for queue, epoch in ((int(queue), epoch) for queue, epoch in answer["locked"].items()):
                    assert holder_of.setdefault(epoch, (queue, member)) == (queue, member)
                    assert epoch >= newest[queue]
                    newest[queue] = epoch


def test_no_more_queues_than_the_limit_are_locked_and_expired_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused as a whole, nothing changed; what has ended counts no more."""
    monkeypatch.setattr(locks_module, "QUEUE_LOCKS_MAX", 3)
    locks = QueueLocks()
    locks.lock(0, "g", "t", [0, 1], "a")
    before = locks.pack()
    with pytest.raises(LimitReached):
        locks.lock(1, "g", "t", [2, 3], "b")
    assert locks.pack() == before
    assert list(locks.lock(QUEUE_LOCK_MS, "g", "t", [2, 3], "b")["locked"]) == ["2", "3"]
    assert len(locks) == 2
