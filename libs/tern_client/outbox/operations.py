"""What is done to an outbox in one database transaction, written once for every driver: a function
of `Execute` (`databases.py`). Times are arguments.

    claim    the lease made younger, rows chosen, their attempt noted   -> before they are sent
    settle   sent rows deleted or kept, refused ones set aside          -> behind the answers

Law: the attempt of a row is committed before its first byte is sent. A relay that finds a row with
an old attempt looks for its message at the server before it repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tern_client.outbox.batches import ClaimLimits, chosen, suspects
from tern_client.outbox.lease import LeaseWatch, SeenLease
from tern_client.outbox.rows import Backlog, ClaimedRow, FailedRow, Head, message_of
from tern_client.outbox.statements import Execute, OutboxStatements, Statement
from tern_wire.errors import TernError

# Rows in the list of a statement.
LISTED_MAX = 500
# Kept rows that one settle deletes.
_PURGED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one transaction gave a relay: rows to send, or rows to look for first."""

    rows: Sequence[ClaimedRow] = ()
    suspects: Sequence[Head] = ()
    # Rows that hold no message: something else has written them. They were set aside.
    damaged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How rows ended: `sent` by number, and `refused` with the server's error."""

    sent: Sequence[int] = ()
    refused: Mapping[int, TernError] | None = None


def is_waiting(execute: Execute, statements: OutboxStatements, left_out: Sequence[str], *, hold: bool) -> bool:
    """Whether a row waits in a topic that is not left out. Only reads, so an idle relay writes
    nothing.
    """
    return bool(execute(statements.waiting(1, left_out, hold=hold)).rows)


def see_lease(execute: Execute, statements: OutboxStatements) -> SeenLease | None:
    """Return the lease; None before the first relay has made it."""
    rows = execute(statements.read_lease()).rows
    return SeenLease(str(rows[0][0]), _number(rows[0][1])) if rows else None


def take_lease(execute: Execute, statements: OutboxStatements, watch: LeaseWatch, me: str, monotonic_ms: float) -> bool:
    """Take the lease, or make it younger; return whether it is this relay's now."""
    seen = see_lease(execute, statements)
    if seen is None or not watch.may_take(seen, monotonic_ms):
        return False
    return execute(statements.take_lease(me, seen.owner, seen.version)).count == 1


def free_lease(execute: Execute, statements: OutboxStatements, me: str) -> None:
    """Give the lease back, if it is this relay's."""
    seen = see_lease(execute, statements)
    if seen is not None and seen.owner == me:
        execute(statements.take_lease("", me, seen.version))


def claim(
    execute: Execute, statements: OutboxStatements, limits: ClaimLimits, left_out: Sequence[str], now_ms: int
) -> Claim:
    """Choose waiting rows, note their attempt, and return them; in the transaction that took the
    lease.
    """
    heads = chosen([_head(row) for row in execute(_waiting(statements, limits, left_out)).rows], limits)
    if not heads:
        return Claim()
    if found := suspects(heads, now_ms):
        return Claim(suspects=found)
    seqs = [head.seq for head in heads]
    contents = {_number(seq): (body, fields) for seq, body, fields in execute(statements.contents(seqs)).rows}
    execute(statements.mark(seqs, now_ms))
    rows, damaged = [], 0
    for head in heads:
        if head.seq not in contents:
            continue  # settled by a relay that had the lease before
        body, fields = contents[head.seq]
        try:
            rows.append(ClaimedRow(head=head, message=message_of(head, _bytes(body), str(fields))))
        except ValueError as error:
            execute(statements.fail(head.seq, "row-damaged", f"The row holds no message: {error}", now_ms))
            damaged += 1
    return Claim(rows=rows, damaged=damaged)


def settle(
    execute: Execute, statements: OutboxStatements, settlement: Settlement, now_ms: int, keep_ms: int | None
) -> None:
    """Delete or keep what was sent, set aside what was refused, and delete what was kept for
    *keep_ms*.
    """
    for start in range(0, len(settlement.sent), LISTED_MAX):
        seqs = settlement.sent[start : start + LISTED_MAX]
        execute(statements.delete(seqs) if keep_ms is None else statements.keep(seqs, now_ms))
    for seq, error in (settlement.refused or {}).items():
        execute(statements.fail(seq, error.code, error.detail, now_ms))
    if keep_ms is not None:
        old = [_number(row[0]) for row in execute(statements.kept_before(now_ms - keep_ms, _PURGED_MAX)).rows]
        for start in range(0, len(old), LISTED_MAX):
            execute(statements.delete(old[start : start + LISTED_MAX]))


def mark_unsent(execute: Execute, statements: OutboxStatements, seqs: Sequence[int], now_ms: int) -> None:
    """Note that the server has no message of these rows: they are sent as if for the first time."""
    if seqs:
        execute(statements.mark_unsent(seqs, now_ms))


def failed_rows(execute: Execute, statements: OutboxStatements, limit: int) -> list[FailedRow]:
    """Return the first *limit* rows that were set aside."""
    return [
        FailedRow(
            id=str(row_id),
            topic=str(topic),
            message_group=str(group),
            created_at=_number(created),
            attempts=_number(attempts),
            failed_at=_number(failed),
            error_code=str(code),
            error_detail=str(detail),
        )
        for row_id, topic, group, created, attempts, failed, code, detail in execute(statements.failed(limit)).rows
    ]


def retry(execute: Execute, statements: OutboxStatements, ids: Sequence[str]) -> int:
    """Let failed rows wait again; return how many there were."""
    parts = [ids[start : start + LISTED_MAX] for start in range(0, len(ids), LISTED_MAX)]
    return sum(execute(statements.retry(part)).count for part in parts)


def discard(execute: Execute, statements: OutboxStatements, ids: Sequence[str]) -> int:
    """Delete failed rows; return how many there were."""
    parts = [ids[start : start + LISTED_MAX] for start in range(0, len(ids), LISTED_MAX)]
    return sum(execute(statements.discard(part)).count for part in parts)


def backlog(execute: Execute, statements: OutboxStatements) -> Backlog:
    """Count what waits and what failed."""
    waiting, oldest = execute(statements.count_waiting()).rows[0]
    return Backlog(
        waiting=_number(waiting),
        oldest_at=_number(oldest),
        failed=_number(execute(statements.count_failed()).rows[0][0]),
    )


def _waiting(statements: OutboxStatements, limits: ClaimLimits, left_out: Sequence[str]) -> Statement:
    return statements.waiting(limits.rows_max, left_out, hold=limits.hold)


def _head(row: Sequence[object]) -> Head:
    seq, row_id, topic, group, size_bytes, attempted = row
    return Head(
        seq=_number(seq),
        id=str(row_id),
        topic=str(topic),
        message_group=str(group),
        size_bytes=_number(size_bytes),
        attempted_at=None if attempted is None else _number(attempted),
    )


def _number(value: object) -> int:
    # Counts and sums come as Decimal from some drivers.
    return int(value)  # type: ignore[call-overload, no-any-return]


def _bytes(value: object) -> bytes:
    # A memoryview from some drivers.
    return bytes(value)  # type: ignore[call-overload, no-any-return]
