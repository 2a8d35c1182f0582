"""Settles: receipt handles become rows for broker groups, statuses become results in input order.

Law of `release`: it takes back the one attempt of the lease that it ends, and no earlier attempt.
So a client cannot reduce the attempts of a message, and a message that crashes every consumer still
dies: its leases end by time, which counts. A client that releases a message after its handler has
seen it keeps the message alive in its own group, as `extend` allows, which never counted either;
the same right and quota apply. There is no further bound: a bound on successive releases would make
dead letters of messages that no handler saw, whenever a worker cannot start.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_proxy.core.documents.messages import SettleResult
from tern_proxy.core.documents.receives import SettleEntry
from tern_proxy.core.sending.parameters import invisible_of
from tern_wire.array_thresholds import HANDLES_TOGETHER_MIN
from tern_wire.errors import BatchTooLarge, InvalidField, ReceiptExpired, TernError
from tern_wire.handles import HandleMaker, Receipt
from tern_wire.limits import (
    DEAD_LETTER_REASON_SIZE_MAX_BYTES,
    INVISIBLE_DEFAULT_MS,
    INVISIBLE_MAX_MS,
    SETTLE_ENTRIES_MAX,
)
from tern_wire.link.dead_letters.letters import RejectedMessage
from tern_wire.link.rows import ACK, EXTEND, NACK, RELEASE, SETTLE_ROW, SETTLE_ROWS, SETTLED
from tern_wire.times import given_duration, parse_duration_ms


class SettleParcel:
    """Settles of one request in one broker group; `indexes[i]` is the request's index of row i.

    *rows*: their concatenation in pieces of one or more.
    """

    __slots__ = ("broker_group", "indexes", "rows", "size_bytes")

    def __init__(self, broker_group: str) -> None:
        self.broker_group = broker_group
        self.rows: list[bytes] = []
        self.indexes: list[int] = []
        self.size_bytes = 0

    def add(self, index: int, row: bytes) -> None:
        """Add one row."""
        self.rows.append(row)
        self.indexes.append(index)
        self.size_bytes += len(row)

    def add_all(self, rows: bytes, count: int) -> None:
        """Add *count* rows, those of all entries of the request."""
        self.rows.append(rows)
        self.indexes += range(count)
        self.size_bytes += len(rows)


class Rejects:
    """Rejected messages of one request in one broker group, for a DEAD_LETTER.

    `indexes` as in SettleParcel.
    """

    __slots__ = ("broker_group", "indexes", "rows")

    def __init__(self, broker_group: str) -> None:
        self.broker_group = broker_group
        self.rows: list[RejectedMessage] = []
        self.indexes: list[int] = []


class Settles:
    """Settles of one request: parcels and rejects by broker group, and errors of unsent entries."""

    __slots__ = ("are_acks", "errors", "handles", "parcels", "rejects", "releases")

    def __init__(self, handles: list[str], *, are_acks: bool = True) -> None:
        """*are_acks*: all settles are acks."""
        self.handles, self.are_acks = handles, are_acks
        self.parcels: dict[str, SettleParcel] = {}
        self.rejects: dict[str, Rejects] = {}
        self.errors: dict[int, TernError] = {}
        # Indexes of the releases in the request.
        self.releases: list[int] = []

    def add(self, index: int, broker_group: str, row: bytes) -> None:
        """Add *row* to its broker group's parcel."""
        parcel = self.parcels.get(broker_group)
        if parcel is None:
            parcel = self.parcels[broker_group] = SettleParcel(broker_group)
        parcel.add(index, row)

    def reject(self, index: int, receipt: Receipt, reason: str) -> None:
        """Add the message of *receipt* to its broker group's rejects."""
        rejects = self.rejects.get(receipt.broker_group)
        if rejects is None:
            rejects = self.rejects[receipt.broker_group] = Rejects(receipt.broker_group)
        numbers = (receipt.group_id, receipt.topic_id, receipt.queue, receipt.offset, receipt.lease)
        rejects.rows.append(RejectedMessage(*numbers, reason))
        rejects.indexes.append(index)

    def take_statuses(self, parcel: SettleParcel | Rejects, statuses: bytes | TernError) -> None:
        """Record the broker group's answer to *parcel*."""
        if isinstance(statuses, TernError):
            self.errors.update(dict.fromkeys(parcel.indexes, statuses))
        elif statuses.count(SETTLED) != len(statuses):
            expired = ReceiptExpired()
            for index, status in zip(parcel.indexes, statuses, strict=True):
                if status != SETTLED:
                    self.errors[index] = expired

    def results(self) -> list[SettleResult]:
        """Return one entry a handle, in input order."""
        entries = [SettleResult(receipt_handle=handle, status="ok") for handle in self.handles]
        for index, error in self.errors.items():
            entries[index] = SettleResult(receipt_handle=self.handles[index], error=error.problem())
        return entries

    @property
    def released(self) -> int:
        """The number of messages that returned without an attempt."""
        return sum(index not in self.errors for index in self.releases)

    @property
    def common_error(self) -> TernError | None:
        """The error of all entries, if every entry failed with one code; else None."""
        if not self.errors or len(self.errors) < len(self.handles):
            return None
        first, *rest = self.errors.values()
        return first if all(error.code == first.code for error in rest) else None


def read_acks(handles: list[str], maker: HandleMaker, pointer: str = "/receipt_handles") -> Settles:
    """Return the acks of *handles*.

    A handle that was not made for this topic and group becomes an error at its index.
    """
    _check_count(len(handles), pointer)
    settles = Settles(handles)
    if len(handles) >= HANDLES_TOGETHER_MIN and (found := maker.read_together(handles)) is not None:
        broker_group, heads = found
        parcel = settles.parcels[broker_group] = SettleParcel(broker_group)
        parcel.add_all(_ack_rows(heads), len(handles))
        return settles
    pack, read = SETTLE_ROW.pack, maker.read
    for index, handle in enumerate(handles):
        try:
            receipt = read(handle)
        except TernError as error:
            settles.errors[index] = error
            continue
        row = pack(receipt.group_id, receipt.topic_id, receipt.queue, ACK, receipt.offset, receipt.lease, 0)
        settles.add(index, receipt.broker_group, row)
    return settles


def read_settles(entries: Sequence[SettleEntry], maker: HandleMaker, pointer: str = "/entries") -> Settles:
    """Return acks, extensions, nacks, releases and rejects.

    Raise InvalidField on another action, or on a field that does not belong to the action.
    """
    handles = [entry.receipt_handle for entry in entries]
    if all(_is_plain_ack(entry) for entry in entries):
        return read_acks(handles, maker, pointer)
    _check_count(len(entries), pointer)
    settles = Settles(handles)
    for index, entry in enumerate(entries):
        action, time_ms = _action_of(entry, pointer, index)
        settles.are_acks &= action == ACK
        if action == RELEASE:
            settles.releases.append(index)
        try:
            receipt = maker.read(entry.receipt_handle)
        except TernError as error:
            settles.errors[index] = error
            continue
        if action == _REJECT:
            settles.reject(index, receipt, entry.reason or "")
            continue
        row = SETTLE_ROW.pack(
            receipt.group_id, receipt.topic_id, receipt.queue, action, receipt.offset, receipt.lease, time_ms
        )
        settles.add(index, receipt.broker_group, row)
    return settles


def _is_plain_ack(entry: SettleEntry) -> bool:
    return entry.action == "ack" and entry.invisible is entry.delay is entry.reason is None


def _ack_rows(heads: npt.NDArray[Any]) -> bytes:
    rows = np.zeros(len(heads), SETTLE_ROWS)
    for name in ("group", "topic", "queue", "offset", "lease"):
        rows[name] = heads[name]
    rows["action"] = ACK
    return rows.tobytes()


# The action of each of these fields.
_FIELDS = {"invisible": "extend", "delay": "nack", "reason": "dead_letter"}
# Not the action of a row: rejects are sent separately, with their reasons.
_REJECT = 0


def _action_of(entry: SettleEntry, pointer: str, index: int) -> tuple[int, int]:
    """Return the action and its time in ms."""
    if _is_plain_ack(entry):
        return ACK, 0
    at = f"{pointer}/{index}"
    for field, action in _FIELDS.items():
        if entry.action != action and getattr(entry, field) is not None:
            raise InvalidField(reason=f"'{field}' belongs to the action '{action}'", pointer=f"{at}/{field}")
    if entry.action == "ack":
        return ACK, 0
    if entry.action == "release":
        return RELEASE, 0
    if entry.action == "extend":
        return EXTEND, INVISIBLE_DEFAULT_MS if entry.invisible is None else invisible_of(entry.invisible)
    if entry.action == "nack":
        return NACK, -1 if entry.delay is None else _delay_of(entry.delay, f"{at}/delay")
    if entry.action == "dead_letter":
        if len((entry.reason or "").encode()) > DEAD_LETTER_REASON_SIZE_MAX_BYTES:
            reason = f"A reason has at most {DEAD_LETTER_REASON_SIZE_MAX_BYTES} bytes"
            raise InvalidField(reason=reason, pointer=f"{at}/reason")
        return _REJECT, 0
    reason = f"'{entry.action[:40]}' is no action; use ack, extend, nack, release or dead_letter"
    raise InvalidField(reason=reason, pointer=f"{at}/action")


def _delay_of(value: str | int, pointer: str) -> int:
    try:
        delay_ms = parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(reason=str(error), pointer=pointer) from error
    if not 0 <= delay_ms <= INVISIBLE_MAX_MS:
        raise InvalidField(reason=f"'delay' is {given_duration(value)}; use 0 s to 12 h", pointer=pointer)
    return delay_ms


def _check_count(count: int, pointer: str) -> None:
    if count > SETTLE_ENTRIES_MAX:
        raise BatchTooLarge(actual=count, limit=SETTLE_ENTRIES_MAX, unit="entries")
    if count == 0:
        raise InvalidField(reason="At least one receipt handle is needed", pointer=pointer)
