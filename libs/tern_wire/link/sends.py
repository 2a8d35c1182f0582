"""Sends, as proxies ask for them: what the rows and records behind the head belong to, and what else there is to say of verdicts."""

from typing import ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class Replay(msgspec.Struct, frozen=True, array_like=True):
    """The message of this *row* was stored by an earlier send: under that *message_id* ("": retention has dropped it), born at *born_ms*.

    *deliver_ms*: when it is delivered, ms since 1970, 0: at once. Of a half message: after how long its transaction's first check was due, in
    whole seconds told as ms, 0: as its producer group said.
    """

    row: int
    message_id: str
    born_ms: int
    deliver_ms: int


class ProducerGroupFacts(msgspec.Struct, frozen=True, array_like=True):
    """A producer group's id, and when its transactions are asked about: first, then every so often, at most so many times.

    All zeros: the broker group does not have it.
    """

    producer_group_id: int
    check_after_ms: int
    check_interval_ms: int
    max_checks: int


class Sent(LinkReply, frozen=True, kw_only=True):
    """What became of *rows* messages. Behind it: as many SEND_VERDICTS.

    *replays*: of rows that an earlier send had stored; *producer_groups*: facts of those that the request names, in its order.
    """

    rows: int
    replays: list[Replay]
    producer_groups: list[ProducerGroupFacts] = msgspec.field(default_factory=list)


class Send(LinkRequest[Sent], frozen=True, kw_only=True):
    """Store messages: behind it are *rows* SEND_ROWS, then as many records. Rows name *topics* and *producer_groups* by their places here.

    *producer_groups*: of half messages.
    """

    code: ClassVar = RequestCode.SEND
    reply: ClassVar = Sent

    topics: list[str]
    rows: int
    producer_groups: list[str] = msgspec.field(default_factory=list)
