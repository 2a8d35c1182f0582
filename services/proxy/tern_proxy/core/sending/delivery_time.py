"""Delivery time and order of a message: `delay`, `deliver_at`, `delay_level` and `message_group`,
validated.

Only messages with one of these fields are processed here; the loop of `encoding.py` selects them
with one condition.
"""

from functools import lru_cache

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.topic import is_printable
from tern_wire.errors import IllegalDeliveryTime, IllegalMessageGroup, PropertyConflictsWithType
from tern_wire.limits import DELAY_LEVELS_MS, MESSAGE_GROUP_SIZE_MAX_BYTES, TIMER_DELAY_MAX_MS
from tern_wire.link.rows import message_group_hash
from tern_wire.records.properties import DELAY_LEVEL, DELIVER_MS, MESSAGE_GROUP
from tern_wire.times import parse_duration_ms, parse_time_ms

_DAYS_MAX = TIMER_DELAY_MAX_MS // 86_400_000


def has_delay(message: PackedMessage | JsonMessage) -> bool:
    """Return whether *message* has a delivery time, even a past one."""
    return message.delay is not None or message.deliver_at is not None or message.delay_level is not None


def deliver_ms_of(message: PackedMessage | JsonMessage, born_ms: int) -> int:
    """Return the delivery time of *message*, ms since 1970; 0: at once, without a time or with a
    past one.

    Raise IllegalDeliveryTime unless at most one field sets it, within TIMER_DELAY_MAX_MS of
    *born_ms*.
    """
    delay, deliver_at, level = message.delay, message.deliver_at, message.delay_level
    given = [
        name
        for name, value in (("delay", delay), ("deliver_at", deliver_at), ("delay_level", level))
        if value is not None
    ]
    if not given:
        return 0
    if len(given) > 1:
        raise IllegalDeliveryTime(reason=f"{' and '.join(given)} exclude each other", pointer=f"/{given[1]}")
    pointer = f"/{given[0]}"
    if level is not None:
        if level < 1:
            raise IllegalDeliveryTime(reason=f"The delay level is {level}", pointer=pointer)
        deliver_ms = born_ms + DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1]
    else:
        try:
            deliver_ms = parse_time_ms(deliver_at) if deliver_at is not None else born_ms + _delay_ms(delay)
        except ValueError as error:
            raise IllegalDeliveryTime(reason=str(error), pointer=pointer) from error
    if deliver_ms - born_ms > TIMER_DELAY_MAX_MS:
        raise IllegalDeliveryTime(reason=f"A message waits {_DAYS_MAX} days at most", pointer=pointer)
    return deliver_ms if deliver_ms > born_ms else 0


def message_group_hash_of(message: PackedMessage | JsonMessage) -> int:
    """Return the hash of the message group; 0 for none.

    Raise IllegalMessageGroup, or PropertyConflictsWithType for fields that it excludes.
    """
    name = message.message_group
    if not name:
        return 0
    data = name.encode()
    if len(data) > MESSAGE_GROUP_SIZE_MAX_BYTES or not is_printable(name):
        raise IllegalMessageGroup(pointer="/message_group")
    reason = ""
    if message.queue:
        reason = "A message group chooses the queue itself: leave 'queue' out"
    elif has_delay(message):
        reason = "Messages of a message group are delivered in order: leave 'delay', 'deliver_at' and 'delay_level' out"
    if reason:
        raise PropertyConflictsWithType(reason=reason, pointer="/message_group")
    return message_group_hash(data)


def timing_properties(message: PackedMessage | JsonMessage, deliver_ms: int) -> str:
    r"""Return the record properties of these fields in RocketMQ's names, `k\x01v\x02...`."""
    text = f"{MESSAGE_GROUP}\x01{message.message_group}\x02" if message.message_group else ""
    if deliver_ms:
        text += f"{DELIVER_MS}\x01{deliver_ms}\x02"
    if message.delay_level is not None:
        text += f"{DELAY_LEVEL}\x01{min(message.delay_level, len(DELAY_LEVELS_MS))}\x02"
    return text


@lru_cache(maxsize=256)
def _delay_ms(delay: str | int | None) -> int:
    """Cached `parse_duration_ms`: producers repeat the same few delays. None: no time is given."""
    return parse_duration_ms(delay) if delay is not None else 0
