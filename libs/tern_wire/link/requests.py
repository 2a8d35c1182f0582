"""Link requests between proxy and broker, and what brokers tell proxies unasked: their codes and the layout of their bodies.

A body is `| head size 4 (little-endian) | head: MessagePack map | raw bytes ... |`. Heads of requests and replies:

| request   | head                                             | raw                          | reply head; raw                    |
|-----------|--------------------------------------------------|------------------------------|------------------------------------|
| SEND      | topics [name], rows, producer_groups [name]      | send rows, then records      | rows, replays; send verdicts       |
| RECEIVE   | topic, group, reader, max_messages, max_bytes,   |                              | topic_id, group_id, runs           |
|           | invisible_ms (0: the group's), attempt_id (16    |                              | [[queue, lease, attempt,           |
|           | bytes or none), again_only (what it got before)  |                              | deadline_ms, count]...]; records   |
| NOTIFY    | topic, group, wait_ms                            |                              | available (0 at the deadline)      |
| SETTLE    | rows                                             | settle rows                  | ; one status byte a row            |
| PULL      | topic, queue, reader, offset, end_offset (-1),   |                              | next_offset, min_offset,           |
|           | max_messages, max_bytes, tags, sql (or none),    |                              | max_offset, suggested_node         |
|           | wait_ms (0: do not wait)                         |                              | (old data: a follower); records    |
| PULL_ANYWHERE | as PULL: of any node, what it has applied    |                              | as PULL                            |
| OFFSETS   | topic, time_ms (-1: none)                        |                              | queues [[queue, min, max] or       |
|           |                                                  |                              | [queue, min, max, at time]...]     |
| CREATE_TOPIC | a change as in `topic_settings.py`            |                              | created, and the topic's settings  |
| CREATE_GROUP | a change as in `group_settings.py`            |                              | created, and the group's settings  |
| DELETE_TOPIC | topic, topic_id (0: whichever has the name)   |                              | deleted, topic_id (0: none left)   |
| DELETE_GROUP | group, group_id (as above)                    |                              | deleted, group_id (as above)       |
| DESCRIBE_TOPIC | topic                                       |                              | settings, queues, groups           |
| DESCRIBE_GROUP | group, topic ("": all)                      |                              | settings, topics                   |
| LIST_GROUPS | namespace ("": none), q, after, limit,         |                              | groups [settings...], more         |
|             | descending, everywhere (in any namespace)      |                              |                                    |
| HOSTED    | after (topic), limit                             |                              | topics [[topic, messages,          |
|           |                                                  |                              | scheduled, [[group, unread,        |
|           |                                                  |                              | leased]...]]...], more, open       |
|           |                                                  |                              | (transactions), dead_letters,      |
|           |                                                  |                              | dead_groups [[group, count]...]    |
|           |                                                  |                              | (the most, where after is "")      |
| GROUP_OFFSETS | group, topic                                 |                              | offsets {queue: offset}            |
| COMMIT_OFFSETS | group, topic, offsets, expected, epochs     |                              | offsets {queue: offset}            |
| SEEK      | group, topic, to (`seeking.py` of the            |                              | queues [[queue, before (-1: not    |
|           | broker), queues (none: all), dry_run             |                              | begun), after]...]                 |
| QUERY     | topic, key, begin_ms, end_ms, count,             |                              | places [place...], next (place or  |
|           | after (place or none: the newest)                |                              | none), truncated; records          |
| TRACE     | topic, message_id                                |                              | found, queue, offset, visible_ms,  |
|           |                                                  |                              | groups [{...}...]; record          |
| LIST_SCHEDULED | topic, begin_ms, end_ms, count,             |                              | messages [[deliver_ms, timer id,   |
|           | after [deliver_ms, timer id]                     |                              | queue, message_id, tag, keys,      |
|           |                                                  |                              | born_ms, body size]...], next      |
|           |                                                  |                              | (as after; none: no more)          |
| RECALL    | topic, deliver_ms, timer_id                      |                              | recalled                           |
| TOPIC_STATS | topic                                          |                              | numbers of the topic, queues       |
| GROUP_STATS | group, topic (none: all)                       |                              | topics [{...}...]                  |
| MEMBERS   | op: heartbeat with what a member says, leave,    |                              | the verdict of `clients.py`        |
|           | lock or unlock (`clients.py` of the broker)      |                              |                                    |
| GROUP_MEMBERS | group, role                                  |                              | generation, members,               |
|           |                                                  |                              | subscription_conflict              |
| ASSIGNMENTS | group, topic, queues [broker-a:3 ...], member  |                              | strategy, strategies, generation,  |
|           | ("": all), strategy ("": the members')           |                              | assignments, unassigned            |
| QUEUE_LOCKS | group, topic                                   |                              | locks {queue: [member, epoch,      |
|           |                                                  |                              | expires in ms]}                    |
| DEAD_LETTER | rows [[group id, topic id, queue, offset, lease, |                            | ; one status byte a row            |
|           | reason]...]                                      |                              |                                    |
| DEAD_LETTERS | group, offset, count, max_bytes, topic, tag,  |                              | letters [[offset, topic, queue,    |
|           | reason, from_ms, to_ms                           |                              | offset there, attempts, cause,     |
|           |                                                  |                              | reason, died_ms, size]...], next   |
|           |                                                  |                              | (-1: no more), count; originals    |
| PURGE     | group                                            |                              | purged                             |
| REDRIVE   | op: start or cancel, and what they need; or get  |                              | the task (`redriving.py`)          |
| AWAIT_REPLY | topic, correlation_id, reply_to, from_ms,      |                              | found; the reply's record, the     |
|           | wait_ms                                          |                              | oldest one stored since from_ms    |
| END_TRANSACTIONS | rows                                      | end rows (`transactions.py`) | ; end verdicts                     |
| CLAIM_CHECKS | checker, producer_group ("": all that have    |                              | checks [[number, claim, attempt,   |
|           | a check URL), max, claim_ms, wait_ms (0: do not  |                              | producer group, its id, begun_ms,  |
|           | wait), max_bytes                                 |                              | claimed_until_ms, [[topic, queue,  |
|           |                                                  |                              | size]...]]...], now_ms; records    |
| REPORT_CHECKS | reports [[number, claim, answer,             |                              | ; one status byte a row            |
|           | latency_ms]...]                                  |                              |                                    |
| DESCRIBE_TRANSACTION | number, producer_group_id             |                              | transaction {...}                  |
| LIST_TRANSACTIONS | producer_group ("": all), state (open,   |                              | transactions [{...}...], more      |
|           | expired, "": both), older_than_ms (age), after   |                              |                                    |
|           | (number), limit                                  |                              |                                    |
| RESOLVE_TRANSACTION | number, producer_group_id, outcome,    |                              | status, outcome, queue, messages,  |
|           | reason, by                                       |                              | topic_id, by, offset               |
| ALTER_PRODUCER_GROUP | a change as in `producer_settings.py` |                              | created, and its settings          |
| DELETE_PRODUCER_GROUP | producer_group                       |                              | deleted                            |
| DESCRIBE_PRODUCER_GROUP | producer_group ("": list), after,  |                              | groups [{producer_group,           |
|           | limit, everywhere (as LIST_GROUPS)               |                              | producer_group_id, stats, and its  |
|           |                                                  |                              | settings}...], more                |
| PUT_PRINCIPAL | document (`principals/documents.py`), base (the |                              | changed, revision, version         |
|           | version that it changes, -1: any), is_repair     |                              |                                    |
| LIST_PRINCIPALS | after (revision; 0: all), limit            |                              | principals [[revision, document in |
|           |                                                  |                              | MessagePack]...], revision, more   |
| STATUS    |                                                  |                              | node, role, term, leader, ...      |

A reader is the principal that reads, "" without one: readers share the room of a link equally (link/requests.py of the broker).

A place names one entry of the key index, [file, number]; where the record has no offset now (it is not visible yet, or not in its queue any more)
the records of QUERY and TRACE carry -1. A transaction is a map: number, producer_group, producer_group_id, state, begun_ms, check_at_ms (of the
next check, 0 for none), attempts, ended_ms, by, reason, message_count, messages [[topic, queue, size, offset or -1]...] (of an ended one only
the first one's), checks [[attempt, at_ms, checker, answer, latency_ms]...] (the newest ones). SEND's replays are [[row, message_id, born_ms, deliver_ms]...] of rows that an earlier send had stored (deliver_ms 0: at once). Where
the request names producer groups, the reply's head has their producer_groups [[id, check_after_ms, check_interval_ms, max_checks]...], zeros of one that is not there; replays
of half messages have in deliver_ms after how long the first one's check was due, in whole seconds (0: as its producer group said). An error reply has code 1 and the
head {code, fields} of a TernError.

A notice is a one-way frame from a broker to every proxy that is linked to it. LEADERSHIP: node, term, serving; sent when a link opens
and whenever `serving` changes, so that a proxy knows of a new leader as soon as that can take its requests.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from tern_wire.errors import LinkBodyMalformed, MalformedBody, TernError, error_from
from tern_wire.link.codec import decode_msgpack, encode_msgpack

HEAD_SIZE = struct.Struct("<I")
# Frame code of an error reply; 0 is success.
ERROR = 1

Parts = list[bytes | bytearray | memoryview]


class RequestCode(IntEnum):
    """Link requests, numbered as RocketMQ's RequestCode where it has one."""

    SEND = 320
    PULL = 11
    PULL_ANYWHERE = 361
    RECEIVE = 200_050 & 0x7FFF
    SETTLE = 200_151 & 0x7FFF
    NOTIFY = 200_054 & 0x7FFF
    OFFSETS = 30
    COMMIT_OFFSETS = 15
    GROUP_OFFSETS = 14
    CREATE_TOPIC = 17
    CREATE_GROUP = 200
    DELETE_TOPIC = 215
    DELETE_GROUP = 207
    DESCRIBE_TOPIC = 351
    DESCRIBE_GROUP = 352
    LIST_GROUPS = 201
    HOSTED = 407
    STATUS = 28
    DEAD_LETTER = 36
    DEAD_LETTERS = 401
    PURGE = 402
    REDRIVE = 403
    MEMBERS = 34
    GROUP_MEMBERS = 38
    ASSIGNMENTS = 400
    QUEUE_LOCKS = 41
    SEEK = 222
    LIST_SCHEDULED = 61
    RECALL = 370
    AWAIT_REPLY = 326
    QUERY = 12
    TRACE = 300
    TOPIC_STATS = 202
    GROUP_STATS = 208
    END_TRANSACTIONS = 37
    CLAIM_CHECKS = 39
    REPORT_CHECKS = 40
    DESCRIBE_TRANSACTION = 323
    LIST_TRANSACTIONS = 324
    RESOLVE_TRANSACTION = 325
    ALTER_PRODUCER_GROUP = 404
    DELETE_PRODUCER_GROUP = 405
    DESCRIBE_PRODUCER_GROUP = 406
    PUT_PRINCIPAL = 3_002
    LIST_PRINCIPALS = 3_005


# What consumers and people read, in masses: it may wait for room, and must leave room for sends and settles.
READS = frozenset(
    {
        *(RequestCode.PULL, RequestCode.PULL_ANYWHERE, RequestCode.RECEIVE, RequestCode.QUERY, RequestCode.TRACE),
        *(RequestCode.DEAD_LETTERS, RequestCode.LIST_SCHEDULED, RequestCode.TOPIC_STATS, RequestCode.GROUP_STATS),
        *(RequestCode.HOSTED, RequestCode.AWAIT_REPLY, RequestCode.NOTIFY),
    }
)


class NoticeCode(IntEnum):
    """One-way frames from brokers to proxies, numbered as RocketMQ's RequestCode (NOTIFY_BROKER_ROLE_CHANGED)."""

    LEADERSHIP = 1_008


def body_parts(head: dict[str, Any], raw: Sequence[bytes | bytearray | memoryview] = ()) -> Parts:
    """The parts of a request's or a reply's body."""
    packed = encode_msgpack(head)
    return [HEAD_SIZE.pack(len(packed)) + packed, *raw]


def read_body(body: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Head and raw bytes; LinkBodyMalformed unless the head is a map inside the body."""
    view = memoryview(body)
    if len(view) < HEAD_SIZE.size:
        raise LinkBodyMalformed(reason="a body without a head")
    end = HEAD_SIZE.size + HEAD_SIZE.unpack_from(view)[0]
    if end > len(view):
        raise LinkBodyMalformed(reason="a head that runs past its body")
    try:
        head = decode_msgpack(view[HEAD_SIZE.size : end])
    except MalformedBody as error:
        raise LinkBodyMalformed(reason=error.detail) from error
    if not isinstance(head, dict):
        raise LinkBodyMalformed(reason="a head that is no map")
    return head, view[end:]


def error_parts(error: TernError) -> Parts:
    """The body of an error reply. Fields stay numbers and texts; anything else travels as text."""
    fields = {key: value if isinstance(value, int | str) else str(value) for key, value in error.fields.items()}
    return body_parts({"code": error.code, "fields": fields})


def read_error(body: bytes | memoryview) -> TernError:
    """The error of an error reply."""
    head, _ = read_body(body)
    fields = head.get("fields")
    return error_from(str(head.get("code")), fields if isinstance(fields, dict) else {})
