"""Event ids of tails: the place in every queue of a topic, as one text. Pure.

    1-<base64url of>
    | topic 4 | { name size, name | topic id | n | n times the next offset } for each broker group |

`topic` is a hash of the topic's full name; all other numbers are varints (LEB128). Queue k's next
offset is the k-th; a queue that is not named is read from its first message, since it is younger
than the id.

Law: an id is whole. A client hands back the last id that it has seen, and any proxy continues
behind exactly that message: nothing between two ids has to be remembered. So every event has one,
even if a topic has a thousand queues; such a topic has ids of some 6 KiB. An id gives no right, so
it carries no MAC: whoever changes it reads other messages of the same topic.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from tern_wire.limits import PLACEMENT_GROUPS_MAX
from tern_wire.limits_tails import TAIL_ID_LENGTH_MAX, TAIL_QUEUES_MAX
from tern_wire.names import is_broker_group

_VERSION = "1-"
_TOPIC_SIZE_BYTES = 4
_NUMBER_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The places of one broker group: the id of its topic there, and each queue's next offset."""

    topic_id: int
    offsets: tuple[int, ...]


def topic_mark(topic: str) -> bytes:
    """Return the hash of a topic's full name in its ids."""
    return blake2b(topic.encode(), digest_size=_TOPIC_SIZE_BYTES).digest()


def varint(number: int) -> bytes:
    """Return *number*, 0 to 2^63 - 1, as LEB128."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def group_head(broker_group: str, topic_id: int, queues: int) -> bytes:
    """Return what precedes the offsets of one broker group."""
    name = broker_group.encode()
    return varint(len(name)) + name + varint(topic_id) + varint(queues)


def id_text(mark: bytes, parts: Iterable[bytes]) -> str:
    """Return the id of the topic with *mark*, of heads and offsets in order."""
    return _VERSION + base64.urlsafe_b64encode(mark + b"".join(parts)).rstrip(b"=").decode()


def write_id(topic: str, places: dict[str, GroupPlace]) -> str:
    """Return the id of *places* in *topic* by broker group."""
    parts: list[bytes] = []
    for name, place in places.items():
        parts.append(group_head(name, place.topic_id, len(place.offsets)))
        parts += map(varint, place.offsets)
    return id_text(topic_mark(topic), parts)


def read_id(topic: str, text: str) -> dict[str, GroupPlace]:
    """Return the places by broker group. Raise ValueError, with the reason, for other texts."""
    if not text.startswith(_VERSION) or len(text) > TAIL_ID_LENGTH_MAX:
        raise ValueError("it is not the id of an event of a tail")
    packed = text.removeprefix(_VERSION)
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("it is not the id of an event of a tail") from error
    if data[:_TOPIC_SIZE_BYTES] != topic_mark(topic):
        raise ValueError("it is the id of an event of another topic")
    try:
        return _read_groups(_Reader(data, _TOPIC_SIZE_BYTES))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("it is cut off or damaged") from error


class _Reader:
    """Bytes with a position."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        """Return the next varint. Raise IndexError behind the end, ValueError for one too large."""
        found = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise ValueError("it is cut off or damaged")
        if found > _NUMBER_MAX:
            raise ValueError("it is cut off or damaged")
        return found

    def text(self, size: int) -> str:
        """Return the next *size* bytes as text. Raise IndexError, UnicodeDecodeError."""
        if self.at + size > len(self.data):
            raise IndexError
        self.at += size
        return self.data[self.at - size : self.at].decode("ascii")


def _read_groups(reader: _Reader) -> dict[str, GroupPlace]:
    found: dict[str, GroupPlace] = {}
    left = TAIL_QUEUES_MAX
    while reader.at < len(reader.data):
        name = reader.text(reader.number())
        topic_id, count = reader.number(), reader.number()
        left -= count
        if left < 0 or len(found) >= PLACEMENT_GROUPS_MAX or name in found or not is_broker_group(name):
            raise ValueError("it is cut off or damaged")
        found[name] = GroupPlace(topic_id, tuple(reader.number() for _ in range(count)))
    return found
