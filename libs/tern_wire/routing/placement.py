"""Placement: the broker groups that own a topic's keyed and ordered messages, and how that changes
safely.

A change neither stores a message twice nor lets one overtake another. A message without key and
message group may go to any broker group that has the topic. A keyed or ordered message may not: one
key table detects repeated keys, and one log keeps the order of a message group. A topic has 1,024
slots of keys and 1,024 of message groups. Its placement names the broker groups that share the
slots. Each slot belongs to the group with the highest score, so a broker group that joins takes
some slots and moves no others:

     key hash, bytes 0 and 1, lowest 10 bits -> slot ┐
     message group hash, bits 32 to 41       -> slot ┴-> owner, one of `groups`

As text, in the state of every broker group that has the topic, and in routes:

     epoch|groups|before      2|broker-a,broker-b|broker-a

Law: while `before` is not empty, a sender asks the owner as of `before` first. That owner decides
in its log, once for all: it has the key already and replays it, or it still holds unsettled
messages of the message group and stores, or it answers MOVED, from then on for ever. Only after
MOVED the owner as of `groups` is asked. A sender that cannot reach the first owner asks no other.
The highest epoch counts. The first of a topic's broker groups assigns its epochs, so that two
concurrent changes do not both count. Reference: rendezvous hashing, Thaler and Ravishankar 1998.
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
    """Placement. *groups* and *before* are names of broker groups, ascending; *before* is empty
    when nothing moves.

    Epoch 0 is the placement of a topic without one.
    """

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
        """Return the placement of the next epoch, on *groups*."""
        return Placement(epoch=self.epoch + 1, groups=tuple(sorted(groups)), before=self.groups)

    def ended(self) -> "Placement":
        """Return the placement of the next epoch, with the move ended."""
        return Placement(epoch=self.epoch + 1, groups=self.groups)


@lru_cache(maxsize=4_096)
def read_placement(text: str) -> Placement:
    """Parse a placement; "" is epoch 0. Raise InvalidField for other texts."""
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
    """Return the valid placement among those of a topic's broker groups (name -> text, "" for
    none).

    The newest is valid. Two proxies that create a topic at once, one of which does not yet have all
    broker groups in its routes, can leave two of one epoch; then the one on which all its members
    agree is valid.
    """
    read = {name: read_placement(text) for name, text in parts.items()}
    newest = max((each.epoch for each in read.values()), default=0)
    if not newest:
        return Placement(groups=tuple(sorted(parts)))
    found = {each for each in read.values() if each.epoch == newest}
    agreed = {each for each in found if all(read.get(name, each) == each for name in each.groups)}
    return min(agreed or found, key=lambda each: (each.groups, each.before))


# Owners -------------------------------------------------------------------------------------------
@lru_cache(maxsize=1_024)
def owners(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the owner of each slot, one of *groups*; "" if there are none."""
    if len(groups) < 2:
        return (groups or ("",)) * SLOTS
    return tuple(max(groups, key=lambda name: (_score(name, slot), name)) for slot in range(SLOTS))


def _score(name: str, slot: int) -> bytes:
    return blake2b(f"{name}:{slot}".encode(), digest_size=8).digest()


def slot_of_key(key: bytes) -> int:
    """Return the slot of a 16-byte key hash."""
    return (key[0] | key[1] << 8) & _MASK


def slot_of_message_group(message_group: int) -> int:
    """Return the slot of a message group's hash.

    Its lowest bits choose the queue and are not used here: otherwise two broker groups would each
    use half of their queues.
    """
    return message_group >> 32 & _MASK
