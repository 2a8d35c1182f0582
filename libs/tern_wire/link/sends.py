"""Link request for sends: the topics of its rows and records, and the facts of the reply beside the
verdicts.
"""

from typing import ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class Replay(msgspec.Struct, frozen=True, array_like=True):
    """Replay: the message of *row* was stored by an earlier send under *message_id*, born at
    *born_ms*.

    *message_id* is "" if retention has dropped the message. *deliver_ms* is the delivery time, ms
    since 1970, 0 for at once. For a half message it is the delay of its transaction's first check,
    in ms rounded to whole seconds, 0 for the producer group's setting.
    """

    row: int
    message_id: str
    born_ms: int
    deliver_ms: int


class ProducerGroupFacts(msgspec.Struct, frozen=True, array_like=True):
    """Producer group's id and its check settings: the first delay, the interval, and the number of
    checks.

    All zeros: the broker group does not have it.
    """

    producer_group_id: int
    check_after_ms: int
    check_interval_ms: int
    max_checks: int


class Sent(LinkReply, frozen=True, kw_only=True):
    """Reply: the results of *rows* messages. Raw bytes: as many SEND_VERDICTS.

    *replays*: of rows that an earlier send had stored. *producer_groups*: facts of the producer
    groups in the request, in its order.
    """

    rows: int
    replays: list[Replay]
    producer_groups: list[ProducerGroupFacts] = msgspec.field(default_factory=list)


class Send(LinkRequest[Sent], frozen=True, kw_only=True):
    """Store messages. Raw bytes: *rows* SEND_ROWS, then as many records.

    Rows refer to *topics* and *producer_groups* (of half messages) by index.
    """

    code: ClassVar = RequestCode.SEND
    reply: ClassVar = Sent

    topics: list[str]
    rows: int
    producer_groups: list[str] = msgspec.field(default_factory=list)
