"""A SEND of a few plain messages, decided one by one: most SENDs have one to three, and arrays cost
the same for one row as for fifty.

Plain: the topic exists, is writable and belongs to this broker group alone; the row is no half
message; its key is new.

Law: the decision equals that of the arrays in sending.py, to the byte. A SEND that cannot be
decided here is left to them, with nothing changed.
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.appending import append_few
from tern_broker.core.delivery.slots import SLOTS, Slots
from tern_broker.core.sending.idempotency import KeyTable, NewKey
from tern_broker.core.topics import Names, Topic
from tern_wire.limits import TIMER_DELAY_MAX_MS
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.key_rows import QUEUE_SHIFT, SCHEDULED_QUEUE, split_key
from tern_wire.link.rows import FLAG_KEYED, PLAIN_FLAGS, SCHEDULED, SEND_ROW, SEND_VERDICTS, SENT, QueueAppends
from tern_wire.link.timer_rows import TIMER_ROWS
from tern_wire.routing.route import PERM_WRITE

_UNUSUAL = ~PLAIN_FLAGS
# The clock of a proxy, which checks the longest delay, may be ahead of the group's by a day.
WAIT_MAX_MS = TIMER_DELAY_MAX_MS + 24 * 3_600_000
# Verdicts, appends, waiting messages (TIMER_ROWS).
FewSent = tuple[npt.NDArray[Any], QueueAppends | None, npt.NDArray[Any] | None]
_VERDICT, _TIMER = struct.Struct("<IIq"), struct.Struct(">qqqIIIIq")
assert (_VERDICT.size, _TIMER.size) == (SEND_VERDICTS.itemsize, TIMER_ROWS.itemsize)


def apply_few(
    payload: memoryview, count: int, position: int, now_ms: int, names: Names, keys: KeyTable, slots: Slots
) -> FewSent | None:
    """Apply a SEND of *count* rows (1 or more) without receipts; None: the arrays decide.

    *position* is the position of *payload* in the log.
    """
    at = SEND_HEAD.size + count * SEND_ROW.size
    if at > len(payload):
        return None
    queues: list[int] = []
    offsets: list[int] = []  # of a message that waits: its timer's id
    codes: list[int] = []
    places: list[tuple[int, int, int]] = []
    direct: list[int] = []  # numbers of the rows that do not wait
    fresh: list[tuple[int, int, int, int]] = []  # number of the row, halves of its key, CRC
    grouped: dict[tuple[int, int], tuple[int, Topic, int]] = {}  # by slot: number of the row, topic, message group
    timers = bytearray()
    rows = SEND_ROW.iter_unpack(payload[SEND_HEAD.size : at])
    for number, (size, topic_id, queue, flags, tag, crc, _, key, deliver_ms, message_group) in enumerate(rows):
        topic = names.topics_by_id.get(topic_id)
        if topic is None or topic.is_shared or not topic.perm & PERM_WRITE or queue >= topic.queues:
            return None
        if flags & _UNUSUAL or deliver_ms > now_ms + WAIT_MAX_MS:
            return None
        if message_group:
            slot = (topic_id, message_group % SLOTS)
            # Two rows of one slot may move it between them: the arrays handle them together.
            if deliver_ms > now_ms or slot in grouped or not slots.accepts_one(topic, message_group, queue):
                return None
            grouped[slot] = (number, topic, message_group)
        if flags & FLAG_KEYED:
            fresh.append((number, *split_key(key, topic_id), crc))
        if deliver_ms > now_ms:
            timers += _TIMER.pack(deliver_ms, position + at, position + at, size, topic_id, queue, 0, tag)
        else:
            direct.append(number)
            codes.append(topic_id << 32 | queue)
            places.append((position + at, size, tag))
        queues.append(queue)
        offsets.append(position + at)
        at += size
    if at != len(payload):
        return None
    if fresh:
        is_known = any(keys.has(first, second) for _, first, second, _ in fresh)
        if is_known or len(fresh) > keys.room() or len({first for _, first, _, _ in fresh}) < len(fresh):
            return None
    appends = None
    statuses = [SCHEDULED] * count
    if codes:
        appends, given = append_few(names, codes, places)
        for number, offset in zip(direct, given, strict=True):
            statuses[number], offsets[number] = SENT, offset
    for number, topic, message_group in grouped.values():
        slots.sent_one(topic, message_group, queues[number], offsets[number])
    if fresh:
        added: list[NewKey] = []
        for number, first, second, crc in fresh:
            told = queues[number] if statuses[number] == SENT else queues[number] | SCHEDULED_QUEUE
            added.append((first, second, told << QUEUE_SHIFT | offsets[number], crc))
        keys.add_few(added, now_ms)
    verdicts = bytearray()
    for verdict in zip(statuses, queues, offsets, strict=True):
        verdicts += _VERDICT.pack(*verdict)
    waiting = np.frombuffer(timers, TIMER_ROWS) if timers else None
    return np.frombuffer(verdicts, SEND_VERDICTS), appends, waiting
