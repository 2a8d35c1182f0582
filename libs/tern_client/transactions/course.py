"""The course of a transaction: begin, the local transaction, commit or roll back. Pure but for what the local transaction does itself.

      begin --> half messages stored --> local transaction --True--> commit
                                              |------False--> rollback
                                              |------None, or it raised--> nothing is said: the producer group is asked (checking.py)

Law: what the local transaction has decided is never turned round here. An end that could not be told leaves the transaction open, and
whoever answers the check says the same again.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from tern_client.calls.sending import KeySource, too_large, with_key
from tern_client.transactions.models import (
    BegunTransaction,
    Decision,
    EndedTransaction,
    HalfMessage,
    SentTransaction,
    Span,
    State,
)
from tern_client.transactions.transactions import begin_request, end_request, read_begun, read_ended
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_wire.errors import TernError

# One message of a transaction, or several.
HalfMessages = HalfMessage | Sequence[HalfMessage]


class LocalTransactionFailed(TernError):
    """The local transaction raised, or returned what is no outcome; the cause is `__cause__`. Never on the wire."""

    code: ClassVar[str] = "local-transaction-failed"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The local transaction failed"
    fix: ClassVar[str] = (
        "{reason}. Transaction {transaction_id} stays open, since it may have taken effect: the checker asks. "
        "Return False from the local transaction when it is certain that it did not."
    )


def begin(
    course: Course,
    producer_group: str,
    messages: HalfMessages,
    check_after: Span | None,
    key_source: KeySource | None,
    began_ms: float,
) -> Generator[Step, Outcome, BegunTransaction]:
    """Steps of a begin. Raises the TernError when nothing is stored, or may not be: then no local transaction may run."""
    wanted = [messages] if isinstance(messages, HalfMessage) else list(messages)
    for message in wanted:
        if error := too_large(message):
            raise error
    # The first one's key stands for the whole transaction.
    keyed = [with_key(message, key_source) for message in wanted[:1]] + wanted[1:]
    response = yield from call(course, begin_request(producer_group, keyed, check_after), began_ms)
    return read_begun(response, producer_group)


def end(
    course: Course, transaction_id: str, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, EndedTransaction]:
    """Steps of a commit or a rollback; ending it again the same way is no error."""
    response = yield from call(course, end_request(transaction_id, decision), began_ms)
    return read_ended(response)


def settle(
    course: Course, begun: BegunTransaction, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, SentTransaction]:
    """Steps after the local transaction. An end that could not be told now is no failure; one that can never hold is raised:
    TransactionResolved (it has ended the other way), TransactionExpired, TransactionUnknown."""
    if decision is Decision.UNKNOWN:
        return SentTransaction(begun=begun, decision=decision, state=State.OPEN)
    try:
        yield from end(course, begun.transaction_id, decision, began_ms)
    except TernError as error:
        if not error.retryable:
            raise
        return SentTransaction(begun=begun, decision=decision, state=State.OPEN, error=error)
    return SentTransaction(
        begun=begun, decision=decision, state=State.COMMITTED if decision is Decision.COMMIT else State.ROLLED_BACK
    )


@contextmanager
def local_failures(begun: BegunTransaction) -> Iterator[None]:
    """Whatever the local transaction raises inside becomes LocalTransactionFailed; being cancelled or interrupted stays what it is."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise LocalTransactionFailed(transaction_id=begun.transaction_id, reason=reason) from error
