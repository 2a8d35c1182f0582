"""Locks of queues for ordered pull: one member of a group reads a queue at a time, and an epoch
distinguishes the holders.

     member a locks   epoch 7  a renews   7  (60 s without renewal, or a leaves)  b locks   epoch 9
     a request of a with epoch 7 is late: only the newest epoch of a queue is valid

Law: epochs come from one counter that only grows, so an epoch names one holder of one queue for
ever, and a queue's epoch grows with each change of holder. A holder that renews, even late, keeps
its epoch unless another member had the queue since.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tern_broker.core.namespace_counts import NamespaceCounts
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import LimitReached, QueueLockLost
from tern_wire.limits import QUEUE_LOCK_MS, QUEUE_LOCKS_MAX

# Consumer group, topic, number of the queue in this broker group.
LockedQueue = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class QueueLock:
    """The holder of a queue, its epoch, and the time (ms) at which the lock ends unless it is
    renewed.
    """

    member: str
    epoch: int
    until_ms: int


class QueueLocks:
    """All locks of a broker group. Owner: the state machine, through Clients."""

    def __init__(self) -> None:
        self._locks: dict[LockedQueue, QueueLock] = {}
        # (group, member) -> queues that it holds, or held with no later holder. Dicts, because the
        # order of sets is undefined.
        self._held: dict[tuple[str, str], dict[LockedQueue, None]] = {}
        self._next_epoch = 1
        # Number of locks, by namespace of the group.
        self.counts = NamespaceCounts()

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, now_ms: int, group: str, topic: str, queues: Iterable[int], member: str) -> dict[str, Any]:
        """Lock or renew *queues* for *member*, which must be alive. Each queue is locked on its
        own.

        Return `locked` {queue: epoch}, the queues that the member holds now, and `held` {queue:
        member}, those of other members. Raise LimitReached, with nothing changed, when there would
        be too many locks.
        """
        wanted = sorted(set(queues))
        if self._with(group, topic, wanted) > QUEUE_LOCKS_MAX:
            self._forget_expired(now_ms)
        if (actual := self._with(group, topic, wanted)) > QUEUE_LOCKS_MAX:
            raise LimitReached(what="locked queues", actual=actual, limit=QUEUE_LOCKS_MAX)
        locked, held = {}, {}
        for queue in wanted:
            key = (group, topic, queue)
            found = self._locks.get(key)
            if found is not None and found.member != member and found.until_ms > now_ms:
                held[str(queue)] = found.member
                continue
            if found is not None and found.member == member:
                epoch = found.epoch
            else:
                self._forget(key)
                epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
            self._put(key, QueueLock(member, epoch, now_ms + QUEUE_LOCK_MS))
            locked[str(queue)] = epoch
        return {"locked": locked, "held": held, "until_ms": now_ms + QUEUE_LOCK_MS}

    def unlock(self, group: str, topic: str, queues: Iterable[int], member: str) -> list[int]:
        """Release *queues*; return those that *member* held."""
        keys = [(group, topic, queue) for queue in sorted(set(queues))]
        mine = [key for key in keys if key in self._locks and self._locks[key].member == member]
        for key in mine:
            self._forget(key)
        return [queue for _, _, queue in mine]

    def require(self, group: str, topic: str, queue: int, epoch: int) -> None:
        """Raise QueueLockLost unless *epoch* is the newest of *queue*: no other member had it
        since, though the lock may have ended.
        """
        found = self._locks.get((group, topic, queue))
        if found is None or found.epoch != epoch:
            raise QueueLockLost(queue=queue, epoch=epoch)

    def release(self, group: str, member: str) -> None:
        """Release all queues of *member*, which has left: others may lock them at once."""
        for key in list(self._held.get((group, member), ())):
            self._forget(key)

    def holders(self, now_ms: int, group: str, topic: str, queues: int) -> dict[int, QueueLock]:
        """Return the locks of the first *queues* queues of *topic* that are valid at *now_ms*."""
        found = {queue: self._locks.get((group, topic, queue)) for queue in range(queues)}
        return {queue: lock for queue, lock in found.items() if lock is not None and lock.until_ms > now_ms}

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        locks = [[*key, lock.member, lock.epoch, lock.until_ms] for key, lock in self._locks.items()]
        return {"next_epoch": self._next_epoch, "locks": locks}

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._locks)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        rows = rows_of(self._locks.items(), number)
        return [self._next_epoch, [[*key, lock.member, lock.epoch, lock.until_ms] for key, lock in rows]]

    def unpack(self, packed: Any) -> None:
        """Restore the state from *packed*. Call it on a new instance."""
        self._next_epoch = packed["next_epoch"]
        for group, topic, queue, member, epoch, until_ms in packed["locks"]:
            self._put((group, topic, queue), QueueLock(member, epoch, until_ms))

    def _with(self, group: str, topic: str, queues: list[int]) -> int:
        """Return the number of locks if *queues* were locked too."""
        return len(self._locks) + self.new_among(group, topic, queues)

    def new_among(self, group: str, topic: str, queues: Iterable[int]) -> int:
        """Return how many of *queues*, each once, have no lock yet."""
        return sum((group, topic, queue) not in self._locks for queue in queues)

    def _put(self, key: LockedQueue, lock: QueueLock) -> None:
        if key not in self._locks:
            self.counts.add(key[0])
        self._locks[key] = lock
        self._held.setdefault((key[0], lock.member), {})[key] = None

    def _forget(self, key: LockedQueue) -> None:
        lock = self._locks.pop(key, None)
        if lock is not None:
            self.counts.add(key[0], -1)
            holder = (key[0], lock.member)
            del self._held[holder][key]
            if not self._held[holder]:
                del self._held[holder]

    def _forget_expired(self, now_ms: int) -> None:
        for key in [key for key, lock in self._locks.items() if lock.until_ms <= now_ms]:
            self._forget(key)
