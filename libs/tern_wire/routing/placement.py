"""Which of a topic's broker groups takes its keyed and its ordered messages, and how that changes without a message stored twice or overtaken.

A message without key and message group may go to any broker group that has the topic. Another one may not: whether a key was sent before
knows one key table, and a message group's order is kept by one log. A topic has 1,024 slots of keys and 1,024 of message groups, and its
placement names the broker groups that share them out, each slot to the one that scores highest (so that a broker group that joins takes some
slots and moves no other):

     key hash, bytes 0 and 1, lowest 10 bits -> slot ┐
     message group hash, bits 32 to 41       -> slot ┴-> owner, one of `groups`

As text, in the state of every broker group that has the topic, and in routes:   epoch|groups|before      2|broker-a,broker-b|broker-a

Law: while `before` is not empty, whoever sends asks the owner as of `before` first. That one decides in its log, once for all: it knows the
key already and replays it, or it still holds unsettled messages of the message group and stores, or it answers MOVED, from then on for ever,
and only then the owner as of `groups` is asked. Who does not see the one to ask, asks nobody. The highest epoch counts. Epochs of one topic are given out by the first of its broker
groups, so that two changes at once do not both count.
Reference: rendezvous hashing, Thaler and Ravishankar 1998.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from tern_wire.errors import InvalidField
from tern_wire.limits import PLACEMENT_EPOCH_MAX, PLACEMENT_GROUPS_MAX
from tern_wire.names import is_broker_group

SLOTS = 1_024
_MASK = SLOTS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """*groups* and *before*: names of broker groups, ascending; *before* is empty when nothing moves. Epoch 0: nobody has said anything."""

    epoch: int = 0
    groups: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether owners as of *before* are asked first."""
        return bool(self.before)

    def __str__(self) -> str:
        return f"{self.epoch}|{','.join(self.groups)}|{','.join(self.before)}" if self.epoch else ""

    def next(self, groups: Iterable[str]) -> "Placement":
        """As of the next epoch, on *groups*."""
        return Placement(epoch=self.epoch + 1, groups=tuple(sorted(groups)), before=self.groups)

    def ended(self) -> "Placement":
        """As of the next epoch, with nothing moving any more."""
        return Placement(epoch=self.epoch + 1, groups=self.groups)


@lru_cache(maxsize=4_096)
def read_placement(text: str) -> Placement:
    """The placement that is written so; "" is epoch 0. InvalidField."""
    if not text:
        return Placement()
    parts = text.split("|")
    epoch = int(parts[0]) if parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) < 10 else 0
    if len(parts) == 3 and 0 < epoch <= PLACEMENT_EPOCH_MAX:
        lists = [tuple(part.split(",")) if part else () for part in parts[1:]]
        if lists[0] and all(_is_list(names) for names in lists):
            return Placement(epoch=epoch, groups=lists[0], before=lists[1])
    raise InvalidField(reason=f"'{text[:80]}' is no placement: epoch|groups|groups before", pointer="/placement")


def _is_list(names: tuple[str, ...]) -> bool:
    return len(names) <= PLACEMENT_GROUPS_MAX and list(names) == sorted(set(names)) and all(map(is_broker_group, names))


def placement_of(parts: Mapping[str, str]) -> Placement:
    """What counts of what the broker groups that have a topic say (name -> text, "" for nothing).

    The newest. Two proxies that create a topic at once, of which one does not know all broker groups yet, can leave two of one epoch: then the
    one that all its members agree on.
    """
    read = {name: read_placement(text) for name, text in parts.items()}
    newest = max((each.epoch for each in read.values()), default=0)
    if not newest:
        return Placement(groups=tuple(sorted(parts)))
    found = {each for each in read.values() if each.epoch == newest}
    agreed = {each for each in found if all(read.get(name, each) == each for name in each.groups)}
    return min(agreed or found, key=lambda each: (each.groups, each.before))


# Owners -----------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1_024)
def owners(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Of each slot the one of *groups* that has it; "" where there are none."""
    if len(groups) < 2:
        return (groups or ("",)) * SLOTS
    return tuple(max(groups, key=lambda name: (_score(name, slot), name)) for slot in range(SLOTS))


def _score(name: str, slot: int) -> bytes:
    return blake2b(f"{name}:{slot}".encode(), digest_size=8).digest()


def slot_of_key(key: bytes) -> int:
    """The slot of a key hash of 16 bytes."""
    return (key[0] | key[1] << 8) & _MASK


def slot_of_message_group(message_group: int) -> int:
    """The slot of a message group's hash. Not its lowest bits, which choose the queue: two broker groups would use half of theirs each."""
    return message_group >> 32 & _MASK
