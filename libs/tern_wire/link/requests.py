"""Codes of link requests and of brokers' notices, and the layout of their bodies.

    | head size 4 (little-endian) | head: MessagePack map | raw bytes ... |

The heads are structs in the files of this folder (`heads.py` describes how they are read):

  | file                   | requests                                                             |
  |------------------------|----------------------------------------------------------------------|
  | `sends.py`             | SEND                                                                 |
  | `receives.py`          | RECEIVE, NOTIFY, SETTLE                                              |
  | `pulls.py`             | PULL, PULL_ANYWHERE (of any node, from its applied state), OFFSETS   |
  | `consumer_offsets.py`  | GROUP_OFFSETS, COMMIT_OFFSETS, SEEK                                  |
  | `planned_reads/`       | PLAN_READ; TAKE_READ_LEASE, RENEW_READ_LEASE, END_READ_LEASE,        |
  |                        | LIST_READ_LEASES                                                     |
  | `queries.py`           | QUERY, TRACE, AWAIT_REPLY                                            |
  | `statistics.py`        | TOPIC_STATS, GROUP_STATS                                             |
  | `scheduled.py`         | LIST_SCHEDULED, RECALL                                               |
  | `topics.py`            | CREATE_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC                           |
  | `groups.py`            | CREATE_GROUP, DELETE_GROUP, DESCRIBE_GROUP, LIST_GROUPS              |
  | `producer_groups.py`   | ALTER_PRODUCER_GROUP, DELETE_PRODUCER_GROUP, DESCRIBE_PRODUCER_GROUP |
  | `hosted.py`            | HOSTED                                                               |
  | `members.py`           | MEMBERS, GROUP_MEMBERS, ASSIGNMENTS, QUEUE_LOCKS                     |
  | `dead_letters.py`      | DEAD_LETTER, DEAD_LETTERS, PURGE                                     |
  | `redrive.py`           | REDRIVE                                                              |
  | `checks.py`            | END_TRANSACTIONS, CLAIM_CHECKS, REPORT_CHECKS                        |
  | `transactions.py`      | DESCRIBE_TRANSACTION, LIST_TRANSACTIONS, RESOLVE_TRANSACTION         |
  | `principals.py`        | PUT_PRINCIPAL, LIST_PRINCIPALS                                       |
  | `status.py`            | STATUS; the notice LEADERSHIP                                        |

The head of an admin request also carries the calling principal (`principals/caller.py`). An error
reply has code 1 and the head {code, fields} of a TernError.
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
    """Codes of link requests, numbered as in RocketMQ's RequestCode where it has one."""

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
    PLAN_READ = 420
    TAKE_READ_LEASE = 421
    RENEW_READ_LEASE = 422
    END_READ_LEASE = 423
    LIST_READ_LEASES = 424
    STAGE = 430
    PUBLISH = 431
    ABANDON_BATCH = 432
    LIST_PUBLICATIONS = 433


# Mass reads of consumers and people: they may wait for room, and must leave room for sends and
# settles.
READS = frozenset(
    {
        *(RequestCode.PULL, RequestCode.PULL_ANYWHERE, RequestCode.RECEIVE, RequestCode.QUERY, RequestCode.TRACE),
        *(RequestCode.DEAD_LETTERS, RequestCode.LIST_SCHEDULED, RequestCode.TOPIC_STATS, RequestCode.GROUP_STATS),
        *(RequestCode.HOSTED, RequestCode.AWAIT_REPLY, RequestCode.NOTIFY, RequestCode.PLAN_READ),
    }
)


class NoticeCode(IntEnum):
    """Codes of one-way frames from brokers to proxies, numbered as in RocketMQ's RequestCode
    (NOTIFY_BROKER_ROLE_CHANGED).
    """

    LEADERSHIP = 1_008


def body_parts(head: dict[str, Any], raw: Sequence[bytes | bytearray | memoryview] = ()) -> Parts:
    """Return the parts of the body of a request or a reply."""
    packed = encode_msgpack(head)
    return [HEAD_SIZE.pack(len(packed)) + packed, *raw]


def read_body(body: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return the head and the raw bytes.

    Raise LinkBodyMalformed unless the head is a map inside the body.
    """
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
    """Return the body of an error reply.

    Numbers and texts keep their types; other fields become texts.
    """
    fields = {key: value if isinstance(value, int | str) else str(value) for key, value in error.fields.items()}
    return body_parts({"code": error.code, "fields": fields})


def read_error(body: bytes | memoryview) -> TernError:
    """Return the error of an error reply."""
    head, _ = read_body(body)
    fields = head.get("fields")
    return error_from(str(head.get("code")), fields if isinstance(fields, dict) else {})
