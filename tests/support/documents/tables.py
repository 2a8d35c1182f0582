"""Tables of docs/ that are made from the code: `python -m tests.support.documents.tables` writes them anew.

Each stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

import re
from collections.abc import Callable
from pathlib import Path

from tern_wire import errors as table
from tern_wire import limits, limits_namespaces, limits_reads, limits_requests, limits_retention, limits_tails
from tern_wire.tern_error import TernError
from tests.support.documents.pages import ROOT

LIMITS = ROOT / "docs" / "limits-and-errors.md"
OPERATIONS = ROOT / "docs" / "operations.md"
_UNITS = {"BYTES": "bytes", "MS": "ms"}


def errors() -> str:
    """Every error by status and code."""
    rows = ["| status | code | title | repeat |", "|---|---|---|---|"]
    ours = [each for each in vars(table).values() if isinstance(each, type) and issubclass(each, TernError)]
    ours.remove(TernError)
    for error in sorted(ours, key=lambda error: (error.status, error.code)):
        rows.append(f"| {error.status} | `{error.code}` | {error.title} | {'yes' if error.retryable else ''} |")
    return "\n".join(rows)


# The limits that a client or an operator meets, in the words of a reader.
_SHOWN = {
    "a message": (
        ("body", "MESSAGE_BODY_SIZE_MAX_BYTES"),
        ("properties, tag and keys together", "PROPERTIES_SIZE_MAX_BYTES"),
        ("properties", "PROPERTIES_MAX"),
        ("keys", "KEYS_MAX"),
        ("tag", "TAG_SIZE_MAX_BYTES"),
        ("message group", "MESSAGE_GROUP_SIZE_MAX_BYTES"),
        ("idempotency key", "IDEMPOTENCY_KEY_SIZE_MAX_BYTES"),
        ("delay", "TIMER_DELAY_MAX_MS"),
        ("time for which idempotency keys are remembered", "IDEMPOTENCY_WINDOW_MS"),
        ("idempotency keys remembered in a broker group", "IDEMPOTENCY_KEYS_MAX"),
    ),
    "a request": (
        ("messages of a batch", "BATCH_MESSAGES_MAX"),
        ("size of a batch", "BATCH_SIZE_MAX_BYTES"),
        ("messages of a receive", "RECEIVE_MESSAGES_MAX"),
        ("messages of a pull", "PULL_MESSAGES_MAX"),
        ("long poll", "WAIT_MAX_MS"),
        ("entries of a settle", "SETTLE_ENTRIES_MAX"),
        ("shortest visibility timeout", "INVISIBLE_MIN_MS"),
        ("longest visibility timeout", "INVISIBLE_MAX_MS"),
        ("filter", "FILTER_SIZE_MAX_BYTES"),
        ("terms of a filter", "FILTER_TERMS_MAX"),
        ("topics of a read plan", "READ_PLAN_TOPICS_MAX"),
        ("queues of a read plan", "READ_PLAN_QUEUES_MAX"),
        ("body of a read plan or a read lease", "READ_BODY_SIZE_MAX_BYTES"),
        ("messages whose size a read plan sums up, in one broker group", "READ_PLAN_ROWS_MAX"),
        ("read lease by default", "READ_LEASE_DEFAULT_MS"),
        ("read lease at most", "READ_LEASE_MAX_MS"),
        ("queues of a read lease, in one broker group", "READ_LEASE_QUEUES_MAX"),
        ("head (request line and fields)", "REQUEST_HEAD_SIZE_MAX_BYTES"),
        ("depth of JSON", "JSON_DEPTH_MAX"),
    ),
    "a consumer group": (
        ("messages in flight in one queue", "LEASED_PER_QUEUE_MAX"),
        ("delivery attempts by default", "ATTEMPTS_DEFAULT"),
        ("delivery attempts at most", "ATTEMPTS_MAX"),
        ("messages of one queue that wait for an earlier one of their message group", "FIFO_PARKED_PER_QUEUE_MAX"),
        ("members", "MEMBERS_PER_GROUP_MAX"),
    ),
    "a transaction": (
        ("messages", "TRANSACTION_MESSAGES_MAX"),
        ("size", "TRANSACTION_SIZE_MAX_BYTES"),
        ("open ones of a producer group", "OPEN_PER_PRODUCER_GROUP_MAX"),
        ("open ones of a broker group", "TRANSACTIONS_MAX"),
        ("checks by default", "CHECKS_DEFAULT"),
    ),
    "a broker group": (
        ("topics", "TOPICS_MAX"),
        ("consumer groups", "GROUPS_MAX"),
        ("producer groups", "PRODUCER_GROUPS_MAX"),
        ("queues", "QUEUES_MAX"),
        ("queues of one topic", "QUEUES_PER_TOPIC_MAX"),
        ("principals", "PRINCIPALS_MAX"),
        ("read leases", "READ_LEASES_MAX"),
        ("read leases of one principal", "READ_LEASES_PER_PRINCIPAL_MAX"),
        ("queues of all read leases", "READ_LEASED_QUEUES_MAX"),
    ),
    "a proxy": (
        ("connections", "PROXY_CONNECTIONS_MAX"),
        ("connections from one address", "CONNECTIONS_PER_ADDRESS_MAX"),
        ("parked long polls", "PARKED_POLLS_MAX"),
        ("parked long polls of one principal", "PARKED_POLLS_PER_PRINCIPAL_MAX"),
        ("open tails", "TAILS_MAX"),
        ("open tails of one principal", "TAILS_PER_PRINCIPAL_MAX"),
        ("queues of a topic that a tail reads", "TAIL_QUEUES_MAX"),
        ("bytes of requests at a time", "IN_FLIGHT_SIZE_MAX_BYTES"),
        ("requests at a time", "REQUESTS_MAX"),
        ("small sends, acks and settles at a time", "WHOLE_REQUESTS_MAX"),
    ),
}


def _value(name: str) -> str:
    value = next(getattr(each, name) for each in _HOMES if hasattr(each, name))
    if name.endswith("_MS"):
        for size, unit in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
            if value % size == 0 and value >= size:
                return f"{value // size:,} {unit}"
        return f"{value:,} ms"
    if name.endswith("_BYTES"):
        for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size:
                return f"{value / size:,.4g} {unit}"
        return f"{value:,} bytes"
    return f"{value:,}"


_HOMES = (limits, limits_requests, limits_namespaces, limits_retention, limits_reads, limits_tails)


def limits_table() -> str:
    """The limits that clients and operators meet."""
    rows = ["| of | what | limit |", "|---|---|---|"]
    rows += [f"| {of} | {what} | {_value(name)} |" for of, named in _SHOWN.items() for what, name in named]
    return "\n".join(rows)


TABLES: dict[tuple[Path, str], Callable[[], str]] = {(LIMITS, "errors"): errors, (LIMITS, "limits"): limits_table}


def written(page: Path) -> str:
    """The text of *page* with its tables made anew."""
    text = page.read_text("utf-8")
    for (home, name), make in TABLES.items():
        if home == page:
            begin, end = re.search(rf"<!-- table: {name}\b.*?-->\n", text), "<!-- end of table -->"
            assert begin is not None, f"{page.name} has no place for the table {name}"
            rest = text[begin.end() :]
            text = f"{text[: begin.end()]}\n{make()}\n{rest[rest.index(end) :]}"
    return text


if __name__ == "__main__":
    for each in {page for page, _ in TABLES}:
        each.write_text(written(each), "utf-8")
