"""Half messages of a SEND: their validation, and the transactions that they begin.

Rows of one transaction are adjacent: the first one has FLAG_HALF alone, the others
FLAG_SAME_TRANSACTION as well. Law: a transaction is prepared whole or not at all. If one of its
rows is refused, all of them get the status of the first refused row.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied
from tern_broker.core.transactions.ends import Transactions
from tern_broker.core.transactions.open_transactions import MESSAGES
from tern_wire.limits import (
    CHECK_AFTER_MAX_MS,
    HALF_MESSAGES_MAX,
    OPEN_PER_PRODUCER_GROUP_MAX,
    PARKED_PER_PRODUCER_GROUP_MAX,
    TRANSACTION_MESSAGES_MAX,
    TRANSACTIONS_MAX,
)
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    FLAGS,
    MALFORMED,
    NO_PRODUCER_GROUP,
    PREPARED,
    PREPARED_BEFORE,
    REPLAYED,
    SENT,
    TOO_MANY_OPEN,
)
from tern_wire.transactions import ORDINAL_BITS

Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class HalfRows:
    """The half rows of one SEND: *numbers* of the rows, ascending, shape (n,); *owners*, the
    transaction (of *count*) of each.
    """

    numbers: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    count: int

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The first row of each transaction."""
        # Owners ascend, and each has a row.
        return self.numbers[np.searchsorted(self.owners, np.arange(self.count))]


class Preparing:
    """Owner: the state machine, whose transactions it begins."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def read(self, rows: Rows, verdicts: Rows) -> HalfRows:
        """Return the half rows among *rows*; rows with flags that no proxy of ours writes are
        refused at once.
        """
        flags = rows["flags"]
        is_half, is_same = (flags & FLAG_HALF) != 0, (flags & FLAG_SAME_TRANSACTION) != 0
        follows = np.zeros(len(rows), bool)
        follows[1:] = is_half[:-1] & (rows["producer_group"][1:] == rows["producer_group"][:-1])
        is_alone = is_same & ~(is_half & follows)
        is_wrong = is_alone | (is_same & ((flags & FLAG_KEYED) != 0)) | ((flags & ~np.uint32(FLAGS)) != 0)
        is_wrong |= is_half & (
            (rows["message_group"] != 0) | (rows["deliver_ms"] < 0) | (rows["deliver_ms"] > CHECK_AFTER_MAX_MS)
        )
        numbers = np.flatnonzero(is_half)
        owners = np.cumsum(~is_same[numbers] | is_alone[numbers]) - 1
        count = int(owners[-1]) + 1 if len(owners) else 0
        is_wrong[numbers[np.bincount(owners, minlength=count)[owners] > TRANSACTION_MESSAGES_MAX]] = True
        verdicts["status"][is_wrong] = MALFORMED
        groups, by_id = rows["producer_group"][numbers], self._transactions.producers.by_id
        unknown = [group_id for group_id in set(groups.tolist()) if group_id not in by_id]
        if unknown:
            lost = numbers[np.isin(groups, unknown)]
            verdicts["status"][lost[verdicts["status"][lost] == SENT]] = NO_PRODUCER_GROUP
        return HalfRows(numbers, owners, count)

    def spread(self, half: HalfRows, verdicts: Rows) -> None:
        """Copy the verdict of the first refused row of each transaction to the whole
        transaction.
        """
        refused = np.flatnonzero(verdicts["status"][half.numbers] != SENT)
        if len(refused):
            owners, at = np.unique(half.owners[refused], return_index=True)
            sources = np.full(half.count, -1, np.int64)
            sources[owners] = half.numbers[refused[at]]
            is_told = sources[half.owners] >= 0
            verdicts[half.numbers[is_told]] = verdicts[sources[half.owners[is_told]]]

    def may_be_of(self, producer_group_id: int, number: int) -> bool:
        """Return whether the transaction *number* is of that producer group; True if it is no
        longer known.
        """
        table = self._transactions.table
        slot = table.slots.get(number)
        if slot is not None:
            return table.get("group", slot) == producer_group_id
        ended = self._transactions.outcomes.find(number)
        return ended is None or ended["group"] == producer_group_id

    def prepare(
        self, half: HalfRows, rows: Rows, positions: Rows, verdicts: Rows, repeats: dict[int, int], applied: Applied
    ) -> int:
        """Begin the transactions of the rows that were not refused, and set their *verdicts*;
        return how many messages they have.

        *repeats*: row -> earlier row of this SEND with the same key.
        """
        self.spread(half, verdicts)
        wanted = np.flatnonzero(verdicts["status"][half.firsts] == SENT)
        accepted = self._with_room(wanted, half, rows, verdicts)
        stored = 0
        if len(accepted):
            stored = self._begin(accepted, half, rows, positions, verdicts, applied)
        for row, first in repeats.items():
            self._repeat(row, first, half, verdicts)
        return stored

    # Helpers --------------------------------------------------------------------------------------
    def _with_room(self, wanted: Rows, half: HalfRows, rows: Rows, verdicts: Rows) -> npt.NDArray[np.int64]:
        """Return those of the transactions *wanted* for which there is room; refuse the others."""
        producers, table = self._transactions.producers, self._transactions.table
        sizes = np.bincount(half.owners, minlength=half.count)
        groups = rows["producer_group"][half.firsts]
        left, messages_left = TRANSACTIONS_MAX - len(table), HALF_MESSAGES_MAX - table.message_count
        begun: Counter[int] = Counter()
        accepted: list[int] = []
        refused: list[int] = []
        for owner in wanted.tolist():
            group_id, size = int(groups[owner]), int(sizes[owner])
            group = producers.by_id[group_id]
            has_room = (
                group.open + begun[group_id] < OPEN_PER_PRODUCER_GROUP_MAX
                and group.expired < PARKED_PER_PRODUCER_GROUP_MAX
                and len(accepted) < left
                and size <= messages_left
            )
            if has_room:
                accepted.append(owner)
                begun[group_id] += 1
                messages_left -= size
            else:
                refused.append(owner)
        if refused:
            verdicts["status"][half.numbers[np.isin(half.owners, refused)]] = TOO_MANY_OPEN
        return np.array(accepted, np.int64)

    def _begin(
        self,
        accepted: npt.NDArray[np.int64],
        half: HalfRows,
        rows: Rows,
        positions: Rows,
        verdicts: Rows,
        applied: Applied,
    ) -> int:
        chosen, owners = half.numbers, half.owners
        if len(accepted) < half.count:
            is_accepted = np.isin(half.owners, accepted)
            chosen, owners = chosen[is_accepted], owners[is_accepted]
        messages = np.zeros(len(chosen), MESSAGES)
        messages["position"] = positions[chosen]
        for name in ("tag", "size", "topic", "queue"):
            messages[name] = rows[name][chosen]
        bounds = np.append(np.searchsorted(owners, accepted), len(owners)).tolist()
        parts = [messages[begin:end].tobytes() for begin, end in pairwise(bounds)]
        numbers = (applied.index << ORDINAL_BITS) + np.arange(applied.begun, applied.begun + len(accepted))
        applied.begun += len(accepted)
        firsts = chosen[bounds[:-1]]
        groups = rows["producer_group"][firsts]
        settings = self._transactions.producers.by_id
        after_ms = rows["deliver_ms"][firsts].astype(np.int64)
        own_ms = np.array([settings[group_id].settings.check_after_ms for group_id in groups.tolist()], np.int64)
        at_ms = applied.now_ms + np.where(after_ms > 0, after_ms, own_ms)
        self._transactions.begin(numbers, groups, applied.now_ms, at_ms, parts)
        verdicts["status"][chosen] = PREPARED
        verdicts["offset"][chosen] = numbers[np.searchsorted(accepted, owners)]
        return len(chosen)

    @staticmethod
    def _repeat(row: int, first: int, half: HalfRows, verdicts: Rows) -> None:
        """Set the verdict of *row*, which has the key of the row *first* of the same SEND.

        Its transaction is that of *first*, or is refused as that one was.
        """
        at = int(np.searchsorted(half.numbers, row))
        if at < len(half.numbers) and half.numbers[at] == row and verdicts["status"][row] == REPLAYED:
            status = int(verdicts["status"][first])
            same = half.numbers[half.owners == half.owners[at]]
            verdicts["status"][same] = PREPARED_BEFORE if status == PREPARED else status
            verdicts["offset"][same] = verdicts["offset"][first]
