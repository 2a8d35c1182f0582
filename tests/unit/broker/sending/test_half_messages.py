"""Half messages as apply sees them: prepared whole or not at all, refused in their statuses, known again by their keys, bounded."""

import numpy as np
import pytest

from tern_broker.core import StateMachine, saving
from tern_wire.limits import TRANSACTION_MESSAGES_MAX
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    KEY_REUSED,
    MALFORMED,
    NO_KEY,
    NO_PRODUCER_GROUP,
    NO_QUEUE,
    NO_TOPIC,
    PREPARED,
    PREPARED_BEFORE,
    SEND_ROW,
    SENT,
    TOO_MANY_OPEN,
)
from tern_wire.transactions import (
    ROLLBACK,
)
from tests.support.broker.half_messages import TransactionLog, half_payload


def again(state: StateMachine) -> StateMachine:
    """Saved and loaded."""
    return saving.load(b"".join(saving.encode(saving.take(state))))


def test_a_transaction_is_prepared_whole_or_not_at_all() -> None:
    """One row that is refused refuses the others with its status; other transactions of the send go on."""
    log = TransactionLog()
    good, lost, torn = ((log.t, 0, b"a"),), ((log.t, 0, b"b"), (99, 0, b"c")), ((log.t, 7, b"d"), (log.t, 0, b"e"))
    statuses, _ = log.begin(1_000, lost, good, torn, key=b"k")
    assert statuses == [NO_TOPIC, NO_TOPIC, PREPARED, NO_QUEUE, NO_QUEUE]
    assert len(log.state.transactions.table) == 1
    assert log.begin(1_001, good, key=b"k")[0] == [PREPARED_BEFORE], "what was refused has not taken the key"
    assert log.begin(1_002, good, group=77)[0] == [NO_PRODUCER_GROUP]
    many = tuple((log.t, 0, b"m") for _ in range(TRANSACTION_MESSAGES_MAX + 1))
    assert log.begin(1_003, many, many[1:])[0] == [MALFORMED] * len(many) + [PREPARED] * (len(many) - 1)


@pytest.mark.parametrize(
    ("flags", "producer_group", "deliver_ms", "message_group", "wanted"),
    [
        ([FLAG_SAME_TRANSACTION | FLAG_HALF], [1], 0, 0, [MALFORMED]),
        ([FLAG_SAME_TRANSACTION], [0], 0, 0, [MALFORMED]),
        ([0, FLAG_SAME_TRANSACTION | FLAG_HALF], [1, 1], 0, 0, [SENT, MALFORMED]),
        ([FLAG_HALF, FLAG_SAME_TRANSACTION | FLAG_HALF], [1, 2], 0, 0, [PREPARED, MALFORMED]),
        ([FLAG_HALF, FLAG_SAME_TRANSACTION | FLAG_HALF | FLAG_KEYED], [1, 1], 0, 0, [MALFORMED] * 2),
        ([FLAG_HALF | 32], [1], 0, 0, [MALFORMED]),
        ([FLAG_HALF], [1], -1, 0, [MALFORMED]),
        ([FLAG_HALF], [1], 3_600_001, 0, [MALFORMED]),
        ([FLAG_HALF], [1], 3_600_000, 0, [PREPARED]),
        ([FLAG_HALF], [1], 0, 5, [MALFORMED]),
    ],
)
def test_half_rows_that_no_proxy_writes_are_refused(
    flags: list[int], producer_group: list[int], deliver_ms: int, message_group: int, wanted: list[int]
) -> None:
    """Alike on every node, with all of their transaction; what is beside them goes on."""
    log = TransactionLog()
    log.producer_group("q")
    good = half_payload(log.p, *(((log.t, 0, b"m"),) for _ in flags))
    records = good[SEND_HEAD.size + 64 * len(flags) :]
    size = len(records) // len(flags)
    rows = [
        SEND_ROW.pack(size, log.t, 0, flag, 0, 0, group, NO_KEY, deliver_ms, message_group)
        for flag, group in zip(flags, producer_group, strict=True)
    ]
    payload = SEND_HEAD.pack(len(flags), 0) + b"".join(rows) + records
    verdicts = log.apply(1_000, (CommandKind.SEND, payload)).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == wanted
    assert len(log.state.transactions.table) == wanted.count(PREPARED)


def test_sends_of_one_entry_begin_transactions_with_numbers_of_their_own() -> None:
    """Lanes of several proxies share an entry: ordinals go on over all of them."""
    log = TransactionLog()
    ones = [(CommandKind.SEND, half_payload(log.p, ((log.t, 0, b"a"),), ((log.t, 0, b"b"),))) for _ in range(3)]
    verdicts = [each["offset"].tolist() for each in log.apply(1_000, *ones).verdicts if isinstance(each, np.ndarray)]
    first = len(log.bodies) << 20
    assert verdicts == [[first, first + 1], [first + 2, first + 3], [first + 4, first + 5]]
    assert len(log.state.transactions.table) == 6


def test_ordinary_messages_beside_half_ones_are_what_they_always_are() -> None:
    """In one SEND: visible at once, waiting for their time, or prepared, each by itself."""
    log = TransactionLog()
    half, plain = half_payload(log.p, ((log.t, 0, b"h"),)), half_payload(0, ((log.t, 0, b"p"),))
    row_of = slice(SEND_HEAD.size, SEND_HEAD.size + 64)
    plain_row = bytearray(plain[row_of])
    plain_row[12:16] = bytes(4)
    rows = [bytes(plain_row), half[row_of], bytes(plain_row)]
    records = plain[row_of.stop :] + half[row_of.stop :] + plain[row_of.stop :]
    verdicts = log.apply(1_000, (CommandKind.SEND, SEND_HEAD.pack(3, 0) + b"".join(rows) + records)).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == [SENT, PREPARED, SENT]
    assert verdicts["offset"][[0, 2]].tolist() == [0, 1]


def test_a_key_stands_for_its_whole_transaction_whenever_it_is_repeated() -> None:
    """In the same send, while it is open, after its end and after a restart; another body, or no half message, is refused."""
    log = TransactionLog()
    pair = ((log.t, 0, b"a"), (log.u, 0, b"b"))
    statuses, numbers = log.begin(1_000, pair, pair, ((log.t, 0, b"z"),), key=b"k")
    assert statuses == [PREPARED, PREPARED, PREPARED_BEFORE, PREPARED_BEFORE, KEY_REUSED]
    assert numbers[:4] == [numbers[0]] * 4
    assert log.begin(1_001, pair, key=b"k") == ([PREPARED_BEFORE] * 2, numbers[:2])
    assert log.send(1_002, (log.t, 0, b"a", b"k"))["status"].tolist() == [KEY_REUSED]
    log.end(2_000, numbers[0], outcome=ROLLBACK)
    assert log.begin(2_001, pair, key=b"k") == ([PREPARED_BEFORE] * 2, numbers[:2])
    log.state = again(log.state)
    assert log.begin(2_002, pair, key=b"k") == ([PREPARED_BEFORE] * 2, numbers[:2])
    assert log.begin(2_003, ((log.t, 0, b"other"),), key=b"k")[0] == [KEY_REUSED]
    assert log.send(2_004, (log.t, 0, b"n", b"plain"))["status"].tolist() == [SENT]
    assert log.begin(2_005, ((log.t, 0, b"n"),), key=b"plain")[0] == [KEY_REUSED]
    assert len(log.state.transactions.table) == 0


def test_a_key_of_another_producer_group_is_not_told() -> None:
    """In the same send, while it is open, and after its end: that group could not end the transaction."""
    log = TransactionLog()
    other, one = log.producer_group("q"), ((log.t, 0, b"a"),)
    number = log.begin_one(1_000, b"a", key=b"k")
    assert log.begin(1_001, one, group=other, key=b"k")[0] == [KEY_REUSED]
    log.end(1_002, number)
    assert log.begin(1_003, one, group=other, key=b"k")[0] == [KEY_REUSED]
    assert log.begin(1_004, one, key=b"k") == ([PREPARED_BEFORE], [number])


def test_a_number_needs_all_its_bits_in_a_key_too() -> None:
    """Entry 2**41 begins a transaction; its key gives back the same number."""
    log = TransactionLog()
    body = b"".join(entry_parts(1_000, [(CommandKind.SEND, [half_payload(log.p, ((log.t, 0, b"a"),), key=b"k")])]))
    first = log.state.apply(memoryview(body), log.position, 1 << 41).verdicts[0]
    repeat = log.state.apply(memoryview(body), log.position, (1 << 41) + 1).verdicts[0]
    assert isinstance(first, np.ndarray)
    assert isinstance(repeat, np.ndarray)
    assert first["offset"].tolist() == repeat["offset"].tolist() == [1 << 61]
    assert repeat["status"].tolist() == [PREPARED_BEFORE]


def test_a_producer_group_has_a_thousand_open_transactions_and_no_more() -> None:
    """The rest of the send is refused; another group goes on; a key that is known is told all the same; an end makes room."""
    log = TransactionLog()
    other = log.producer_group("q")
    first = log.begin_one(1_000, key=b"k")
    ones = tuple(((log.t, 0, b"%d" % number),) for number in range(1_001))
    statuses, numbers = log.begin(1_000, *ones)
    assert statuses == [PREPARED] * 999 + [TOO_MANY_OPEN] * 2
    assert log.begin(1_001, ones[0])[0] == [TOO_MANY_OPEN]
    assert log.begin(1_001, ones[0], group=other)[0] == [PREPARED]
    assert log.begin(1_001, ((log.t, 0, b"m"),), key=b"k") == ([PREPARED_BEFORE], [first])
    full = log.begin(1_002, ones[0], ones[0], key=b"new")[0]
    assert full == [TOO_MANY_OPEN] * 2
    log.end(2_000, numbers[5])
    assert log.begin(2_001, ones[0], key=b"new")[0] == [PREPARED], "the refused one has not taken the key"
    assert log.begin(2_001, ones[1])[0] == [TOO_MANY_OPEN]
