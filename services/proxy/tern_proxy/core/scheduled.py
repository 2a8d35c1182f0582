"""Pages of scheduled messages: the lists of several broker groups merged by (time, broker group,
id).

A cursor names the last position that was read. So a message that comes due or is recalled between
two pages makes no other message appear twice or be skipped.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from tern_proxy.core.documents.scheduled import ScheduledMessage
from tern_wire.errors import InvalidField, MalformedBody
from tern_wire.link import scheduled
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.scheduled import TimerPlace
from tern_wire.recall_handles import Recall, RecallMaker

_ID_MAX = (1 << 62) - 1
CURSOR_LENGTH_MAX = 128
# Delivery time (ms), broker group, timer id.
Place = tuple[int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Page of one broker group, in order, and its last position if there are more."""

    broker_group: str
    rows: Sequence[scheduled.ScheduledMessage]
    next: TimerPlace | None


def after_in(broker_group: str, place: Place | None) -> tuple[int, int]:
    """Return the (time, timer id) behind which *broker_group* continues when *place* was the last
    position of all.
    """
    if place is None:
        return 0, -1
    deliver_ms, last_group, timer_id = place
    if broker_group == last_group:
        return deliver_ms, timer_id
    return deliver_ms, _ID_MAX if broker_group < last_group else -1


def put_together(
    pages: Iterable[GroupPage], limit: int, recalls: RecallMaker
) -> tuple[list[ScheduledMessage], Place | None]:
    """Return at most *limit* messages in order, and the position to continue behind; None at the
    end.
    """
    found: list[tuple[Place, scheduled.ScheduledMessage]] = []
    horizons: list[Place] = []
    for page in pages:
        found += [((row.deliver_ms, page.broker_group, row.timer_id), row) for row in page.rows]
        if page.next is not None:
            # Behind this position the group may have messages that are not in its page.
            horizons.append((page.next[0], page.broker_group, page.next[1]))
    found.sort(key=lambda item: item[0])
    shown = [item for item in found if not horizons or item[0] <= min(horizons)]
    if len(shown) > limit:
        shown = shown[:limit]
        return [_waiting(*item, recalls) for item in shown], shown[-1][0]
    return [_waiting(*item, recalls) for item in shown], min(horizons, default=None)


def _waiting(place: Place, message: scheduled.ScheduledMessage, recalls: RecallMaker) -> ScheduledMessage:
    deliver_ms, broker_group, timer_id = place
    return ScheduledMessage(
        message_id=message.message_id,
        queue=f"{broker_group}:{message.queue}",
        deliver_at=deliver_ms,
        born_at=message.born_ms,
        body_size=message.body_size_bytes,
        recall_handle=recalls.make(Recall(broker_group, deliver_ms, timer_id)),
        tag=message.tag or UNSET,
        keys=message.keys.split(" ") if message.keys else UNSET,
    )


def write_cursor(place: Place) -> str:
    """Return *place* as opaque text."""
    return urlsafe_b64encode(encode_msgpack(list(place))).rstrip(b"=").decode()


def read_cursor(text: str) -> Place:
    """Return the place of a cursor. Raise InvalidField unless it was made here."""
    try:
        if len(text) > CURSOR_LENGTH_MAX:
            raise ValueError("too long")
        deliver_ms, broker_group, timer_id = decode_msgpack(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        is_sound = isinstance(broker_group, str) and all(
            isinstance(number, int) and 0 <= number <= _ID_MAX for number in (deliver_ms, timer_id)
        )
        if not is_sound:
            raise ValueError("not a place")
    except (Base64Error, MalformedBody, TypeError, ValueError) as error:
        raise InvalidField(reason="The cursor was not made by this list", pointer="query/cursor") from error
    return deliver_ms, broker_group, timer_id
