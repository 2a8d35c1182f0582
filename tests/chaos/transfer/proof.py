"""Whether a run of the transfers kept every promise. Pure: two banks' books and the broker's counts in, sentences about what is wrong out.

Law: no cent is made or lost; every debit at bank A is one message in the topic and one credit at bank B, of the same attempt, amount and
account; nothing that rolled back was delivered; no transaction is left open.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Debit:
    """A transfer that bank A has debited, by the attempt that did it. (The credit of bank B has no debtor: -1.)"""

    attempt: str
    creditor: int
    amount_cents: int
    debtor: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message that the group of bank B has received, once or several times."""

    message_id: str
    transfer: int
    attempt: str
    deliveries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What both banks and the broker group say when all is over. Balances are cents by account."""

    transfers: int
    refused: int
    opening_a: int
    balances_a: Mapping[int, int]
    balances_b: Mapping[int, int]
    debits: Mapping[int, Debit]
    credits: Mapping[int, Debit]
    deliveries: Sequence[Delivery]
    # The broker's own: offsets added to the topic, settled for the group, and the producer group's transactions.
    topic_messages: int
    settled_messages: int
    open: int
    expired: int
    committed: int

    @property
    def total_cents(self) -> int:
        """All money of both banks."""
        return sum(self.balances_a.values()) + sum(self.balances_b.values())

    @property
    def opening_cents(self) -> int:
        """All money before the first transfer: bank B began with none."""
        return self.opening_a * len(self.balances_a)


def differences(books: Books) -> list[str]:
    """A sentence for each promise that was not kept; empty when all were."""
    return [*_money(books), *_deliveries(books), *_credits(books), *_counts(books)]


def _money(books: Books) -> list[str]:
    found: list[str] = []
    if books.total_cents != books.opening_cents:
        missing = books.opening_cents - books.total_cents
        found.append(f"money: {abs(missing):,} cents were {'lost' if missing > 0 else 'made'}")
    paid: Counter[int] = Counter()
    for debit in books.debits.values():
        paid[debit.debtor] += debit.amount_cents
    wrong_a = [one for one, cents in books.balances_a.items() if cents != books.opening_a - paid[one]]
    if wrong_a:
        found.append(f"bank A: {len(wrong_a)} accounts do not hold what their debits leave, such as {_some(wrong_a)}")
    got: Counter[int] = Counter()
    for credit in books.credits.values():
        got[credit.creditor] += credit.amount_cents
    wrong_b = [one for one, cents in books.balances_b.items() if cents != got[one]]
    if wrong_b:
        found.append(
            f"bank B: {len(wrong_b)} accounts do not hold what their credits sum up to, such as {_some(wrong_b)}"
        )
    return found


def _deliveries(books: Books) -> list[str]:
    found: list[str] = []
    per_transfer = Counter(
        one.transfer for one in books.deliveries if _attempt_of(books.debits, one.transfer) == one.attempt
    )
    if lost := [transfer for transfer in books.debits if not per_transfer[transfer]]:
        found.append(f"lost: {len(lost)} transfers were debited and never delivered, such as {_some(lost)}")
    if doubled := [transfer for transfer, count in per_transfer.items() if count > 1]:
        found.append(f"doubled: {len(doubled)} transfers were delivered as several messages, such as {_some(doubled)}")
    ghosts = [one.transfer for one in books.deliveries if _attempt_of(books.debits, one.transfer) != one.attempt]
    if ghosts:
        found.append(f"rolled back, yet delivered: {len(ghosts)} messages, such as of transfer {_some(ghosts)}")
    return found


def _credits(books: Books) -> list[str]:
    found: list[str] = []
    if missing := [transfer for transfer in books.debits if transfer not in books.credits]:
        found.append(f"not credited: {len(missing)} transfers that were debited, such as {_some(missing)}")
    if strange := [transfer for transfer in books.credits if transfer not in books.debits]:
        found.append(f"credited, but never debited: {len(strange)} transfers, such as {_some(strange)}")
    unlike = [
        transfer
        for transfer, credit in books.credits.items()
        if (debit := books.debits.get(transfer)) and _facts(debit) != _facts(credit)
    ]
    if unlike:
        found.append(f"credited otherwise than debited: {len(unlike)} transfers, such as {_some(unlike)}")
    return found


def _counts(books: Books) -> list[str]:
    debited = len(books.debits)
    found: list[str] = []
    if debited + books.refused != books.transfers:
        found.append(
            f"{debited:,} debited and {books.refused:,} refused are not the {books.transfers:,} transfers ordered"
        )
    counts = {
        "messages in the topic, by the broker's count": books.topic_messages,
        "messages settled for the group, by the broker's count": books.settled_messages,
        "transactions committed, by the broker's count": books.committed,
    }
    found += [f"{what}: {count:,}, but {debited:,} were debited" for what, count in counts.items() if count != debited]
    if books.open or books.expired:
        found.append(f"{books.open:,} transactions are still open, {books.expired:,} expired")
    return found


def _attempt_of(debits: Mapping[int, Debit], transfer: int) -> str:
    debit = debits.get(transfer)
    return debit.attempt if debit else ""


def _facts(debit: Debit) -> tuple[str, int, int]:
    return debit.attempt, debit.creditor, debit.amount_cents


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers)[:_SHOWN_MAX])
