"""Settles: receipt handles become rows for the broker groups that hold the leases, statuses become results in input order."""

from collections.abc import Sequence
from typing import Any

from tern_proxy.core.parameters import invisible_of
from tern_wire.errors import BatchTooLarge, InvalidField, ReceiptExpired, TernError
from tern_wire.handles import HandleMaker
from tern_wire.limits import INVISIBLE_DEFAULT_MS, SETTLE_ENTRIES_MAX
from tern_wire.messages import SettleEntry
from tern_wire.rows import ACK, EXTEND, SETTLE_ROW, SETTLED


class SettleParcel:
    """Settles of one request in one broker group; `indexes[i]` is the place in the request of row i."""

    __slots__ = ("broker_group", "indexes", "rows", "size_bytes")

    def __init__(self, broker_group: str) -> None:
        self.broker_group = broker_group
        self.rows: list[bytes] = []
        self.indexes: list[int] = []
        self.size_bytes = 0

    def add(self, index: int, row: bytes) -> None:
        """One more."""
        self.rows.append(row)
        self.indexes.append(index)
        self.size_bytes += len(row)


class Settles:
    """One request's settles: parcels by broker group, and errors of entries that never leave the proxy."""

    __slots__ = ("errors", "handles", "parcels")

    def __init__(self, handles: list[str]) -> None:
        self.handles = handles
        self.parcels: dict[str, SettleParcel] = {}
        self.errors: dict[int, TernError] = {}

    def add(self, index: int, broker_group: str, row: bytes) -> None:
        """Put *row* into its broker group's parcel."""
        parcel = self.parcels.get(broker_group)
        if parcel is None:
            parcel = self.parcels[broker_group] = SettleParcel(broker_group)
        parcel.add(index, row)

    def take_statuses(self, parcel: SettleParcel, statuses: bytes | TernError) -> None:
        """What the broker group said to *parcel*."""
        if isinstance(statuses, TernError):
            self.errors.update(dict.fromkeys(parcel.indexes, statuses))
        elif statuses.count(SETTLED) != len(statuses):
            expired = ReceiptExpired()
            for index, status in zip(parcel.indexes, statuses, strict=True):
                if status != SETTLED:
                    self.errors[index] = expired

    def results(self) -> list[dict[str, Any]]:
        """One entry a handle, in input order."""
        if not self.errors:
            return [{"receipt_handle": handle, "status": "ok"} for handle in self.handles]
        return [
            {"receipt_handle": handle, "error": self.errors[index].problem()}
            if index in self.errors
            else {"receipt_handle": handle, "status": "ok"}
            for index, handle in enumerate(self.handles)
        ]

    @property
    def common_error(self) -> TernError | None:
        """The error that every entry met, when it is one and the same cause."""
        if not self.errors or len(self.errors) < len(self.handles):
            return None
        first, *rest = self.errors.values()
        return first if all(error.code == first.code for error in rest) else None


def read_acks(handles: list[str], maker: HandleMaker, pointer: str = "/receipt_handles") -> Settles:
    """Acks of *handles*; a handle that was not made here for this topic and group becomes an error at its index."""
    _check_count(len(handles), pointer)
    settles = Settles(handles)
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
    """Acks and extensions; InvalidField on another action or an `invisible` where none belongs."""
    _check_count(len(entries), pointer)
    settles = Settles([entry.receipt_handle for entry in entries])
    for index, entry in enumerate(entries):
        action, invisible_ms = _action_of(entry, f"{pointer}/{index}")
        try:
            receipt = maker.read(entry.receipt_handle)
        except TernError as error:
            settles.errors[index] = error
            continue
        row = SETTLE_ROW.pack(
            receipt.group_id, receipt.topic_id, receipt.queue, action, receipt.offset, receipt.lease, invisible_ms
        )
        settles.add(index, receipt.broker_group, row)
    return settles


def _action_of(entry: SettleEntry, at: str) -> tuple[int, int]:
    if entry.action == "ack":
        if entry.invisible is not None:
            raise InvalidField(reason="'invisible' belongs to the action 'extend'", pointer=f"{at}/invisible")
        return ACK, 0
    if entry.action == "extend":
        return EXTEND, INVISIBLE_DEFAULT_MS if entry.invisible is None else invisible_of(entry.invisible)
    raise InvalidField(reason=f"'{entry.action[:40]}' is no action; use ack or extend", pointer=f"{at}/action")


def _check_count(count: int, pointer: str) -> None:
    if count > SETTLE_ENTRIES_MAX:
        raise BatchTooLarge(actual=count, limit=SETTLE_ENTRIES_MAX, unit="entries")
    if count == 0:
        raise InvalidField(reason="At least one receipt handle is needed", pointer=pointer)
