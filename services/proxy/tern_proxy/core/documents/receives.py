"""Documents of requests to receive and settle."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from tern_proxy.core.documents.sends import BOUNDED
from tern_proxy.core.documents.values import Invisible, Wait, instead, shown, words
from tern_wire import limits
from tern_wire.handles import HANDLE_SIZE_MAX_CHARS

Handle = Annotated[str, shown(maxLength=HANDLE_SIZE_MAX_CHARS)]
_SETTLES = instead(minItems=1, maxItems=limits.SETTLE_ENTRIES_MAX)


class SettleEntry(Struct, forbid_unknown_fields=True):
    """One settle.

    `ack`; `extend` with a new `invisible` time counted from now; `nack`, which makes the message
    visible again after `delay`, or after the delay of the group's retry policy; `release`, which
    makes it visible at once without counting the attempt, since no handler saw it; or `dead_letter`
    with a `reason`.
    """

    receipt_handle: Handle
    action: Annotated[str, words("ack", "extend", "nack", "release", "dead_letter")] = "ack"
    invisible: Invisible | None = None
    delay: str | int | None = None
    reason: Annotated[str, shown(maxLength=limits.DEAD_LETTER_REASON_SIZE_MAX_BYTES)] | None = None


class SettleRequest(Struct, forbid_unknown_fields=True):
    """The body of settle."""

    entries: Annotated[list[SettleEntry], BOUNDED, _SETTLES]


class AckRequest(Struct, forbid_unknown_fields=True):
    """The body of ack."""

    receipt_handles: Annotated[list[Handle], BOUNDED, _SETTLES]


class MessageFilter(Struct, forbid_unknown_fields=True):
    """The filter of a receive: messages with one of `tags` (`A || B`, or a list of tags), or those
    whose properties make `sql` true.

    Either has at most 1 KiB and 64 terms: tags, or tests, of which IN has one for each value.
    """

    tags: str | list[str] | UnsetType = UNSET
    sql: str | UnsetType = UNSET


class ReceiveRequest(Struct, forbid_unknown_fields=True):
    """The body of receive; every field has a default. `settle` is applied before the wait begins.

    Messages dropped by `filter` count as consumed by the whole group. A repeat of the same
    `attempt_id` (1 to 64 characters) gets the same messages and handles, as long as their leases
    last.
    """

    max_messages: Annotated[int, shown(minimum=1, maximum=limits.RECEIVE_MESSAGES_MAX)] = 32
    max_bytes: Annotated[int, shown(minimum=1, maximum=limits.RECEIVE_SIZE_MAX_BYTES)] = 1024 * 1024
    wait: Wait = 0
    invisible: Invisible | None = None
    settle: Annotated[list[SettleEntry], shown(maxItems=limits.SETTLE_ENTRIES_MAX)] = []
    attempt_id: Annotated[str, shown(maxLength=limits.ATTEMPT_ID_LENGTH_MAX)] = ""
    filter: MessageFilter | None = None
