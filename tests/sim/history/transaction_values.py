"""What simulated clients ask and are answered about transactions, and what nodes hold of them at the end, as values of the history.

A transaction has no name of its own: clients know it by the name of its first message, and by the number that a broker has given it.
"""

from typing import NamedTuple


# CallbackBodies --------------------------------------------------------------------------------------------------------
class Half(NamedTuple):
    """One half message; see Sending. Only the first one of a transaction has a key."""

    topic: str
    queue: int
    name: str
    key: str
    size_bytes: int


class Begin(NamedTuple):
    """Transactions of one producer group, in one request; first asked about after *check_after_ms* (0: as the producer group says)."""

    producer_group: str
    check_after_ms: int
    transactions: tuple[tuple[Half, ...], ...]


class Ending(NamedTuple):
    """How one transaction is to end, and who says so (BY_CLIENT, BY_CHECK); *claim*: of the check that this answers, 0 for none."""

    number: int
    producer_group: str
    outcome: int
    by: int
    claim: int


class End(NamedTuple):
    """Several ends in one request."""

    endings: tuple[Ending, ...]


class Resolve(NamedTuple):
    """A person ends one transaction."""

    number: int
    producer_group: str
    outcome: int


class Claim(NamedTuple):
    """A checker wants up to *count_max* checks for *claim_ms*, of one producer group or ("") of all that have a check URL."""

    checker: str
    producer_group: str
    count_max: int
    claim_ms: int
    wait_ms: int


class Reporting(NamedTuple):
    """What came of one claim."""

    number: int
    claim: int
    answer: str
    latency_ms: int


class Report(NamedTuple):
    """A checker tells what came of its claims."""

    reports: tuple[Reporting, ...]


class Describe(NamedTuple):
    """Look at one transaction."""

    number: int
    producer_group: str


class ListTransactions(NamedTuple):
    """Look at those that have not ended, in *state* ("open", "expired", "": both)."""

    state: str


class Search(NamedTuple):
    """Look for the message *name* of a topic by its id."""

    topic: str
    name: str
    message_id: str


TransactionAsked = Begin | End | Resolve | Claim | Report | Describe | ListTransactions | Search


# Answers ----------------------------------------------------------------------------------------------------------
class Ended(NamedTuple):
    """The verdict over one end (statuses, outcomes and *by* of tern_wire.transactions); *topic* is a name, *offset* -1 for none."""

    status: int
    outcome: int
    by: int
    messages: int
    topic: str
    queue: int
    offset: int


class Check(NamedTuple):
    """One claimed check: claimed until *until_ms* of the group's time; *names*: what the bodies of its messages say they are."""

    number: int
    claim: int
    attempt: int
    producer_group: str
    begun_ms: int
    until_ms: int
    places: tuple[tuple[str, int], ...]
    names: tuple[str, ...]


class CheckNote(NamedTuple):
    """A check that is over."""

    attempt: int
    at_ms: int
    checker: str
    answer: str


class Described(NamedTuple):
    """One transaction as people see it; *places*: topic, queue and offset (-1: none) of its messages, of an ended one of the first only."""

    number: int
    producer_group: str
    state: str
    begun_ms: int
    attempts: int
    by: str
    message_count: int
    places: tuple[tuple[str, int, int], ...]
    notes: tuple[CheckNote, ...]


class TransactionEnd(NamedTuple):
    """What a node's state says of a transaction at the end of a run; *names*: of one that has not ended, what its records' bodies say."""

    described: Described
    names: tuple[str, ...]
