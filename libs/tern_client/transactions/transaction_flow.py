"""The course of a transaction: begin, the local transaction, commit or roll back. Pure, except for
the local transaction itself.

    begin --> half messages stored --> local transaction --True--> commit
                                              |------False--> rollback
                                              |------None, or it raised--> open, until its check

Law: the decision of the local transaction is never reversed here. When the proxy cannot be reached
for the end, the transaction stays open, and the answer to its check repeats the decision.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from tern_client.bodies.serializers import encode_auto
from tern_client.calls.sending import KeySource, prepared, too_large
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
    """The local transaction raised, or returned a value that is no decision. The cause is
    `__cause__`. The transaction stays open, since it may have taken effect, and its check decides.
    Never on the wire.

    Example:

        from tern_client import (
            BegunTransaction,
            BlockingTransactionProducer,
            HalfMessage,
            LocalTransactionFailed,
        )


        def pay(begun: BegunTransaction) -> bool:
            raise OSError("the database is gone")


        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            try:
                producer.send(HalfMessage(topic="orders", body=b"paid"), pay)
            except LocalTransactionFailed as error:
                print(repr(error.__cause__))  # -> OSError('the database is gone')
                print(producer.transaction(error.fields["transaction_id"]).state)  # -> open
    """

    code: ClassVar[str] = "local-transaction-failed"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The local transaction failed"
    fix: ClassVar[str] = (
        "{reason}. Transaction {transaction_id} stays open until its check, since the local transaction may have taken "
        "effect. Return False from it when it certainly did not."
    )


def begin(
    course: Course,
    producer_group: str,
    messages: HalfMessages,
    check_after: Span | None,
    key_source: KeySource | None,
    began_ms: float,
) -> Generator[Step, Outcome, BegunTransaction]:
    """Return the steps of a begin. Raises the TernError when nothing is stored, or perhaps nothing:
    no local transaction may run then.
    """
    wanted = [messages] if isinstance(messages, HalfMessage) else list(messages)
    # The key of the first message stands for the whole transaction.
    keyed = [prepared(message, encode_auto, None if at else key_source) for at, message in enumerate(wanted)]
    for message in keyed:
        if error := too_large(message):
            raise error
    response = yield from call(course, begin_request(producer_group, keyed, check_after), began_ms)
    return read_begun(response, producer_group)


def end(
    course: Course, transaction_id: str, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, EndedTransaction]:
    """Return the steps of a commit or a rollback. A repeat of the same end is no error."""
    response = yield from call(course, end_request(transaction_id, decision), began_ms)
    return read_ended(response)


def settle(
    course: Course, begun: BegunTransaction, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, SentTransaction]:
    """Return the steps that follow the local transaction.

    When the proxy cannot be reached for the end, the result has the state `open`, and no error is
    raised. An end that can never hold is raised: TransactionResolved (it has ended the other way),
    TransactionExpired, TransactionUnknown.
    """
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
    """Raise LocalTransactionFailed for any exception of the local transaction in the block. A
    cancellation or an interrupt is passed on.
    """
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise LocalTransactionFailed(transaction_id=begun.transaction_id, reason=reason) from error
