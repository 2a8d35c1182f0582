"""Transactions as apply sees them: begun, ended once and whole, never visible before, refused in types, the same after a restart."""

from typing import Any

import numpy as np
import pytest

from tern_broker.core import StateMachine, saving
from tern_broker.core.transactions.outcomes import BLOCK_ROWS, OUTCOMES, Outcomes
from tern_broker.core.transactions.views import describe_transaction, list_transactions
from tern_wire.errors import (
    InvalidField,
    ProducerGroupBusy,
    ProducerGroupNotFound,
    TransactionUnknown,
)
from tern_wire.limits import CHECK_TEXTS_MAX, OUTCOMES_KEPT_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.requests import Parts
from tern_wire.link.rows import (
    MOVE_ROWS,
    MOVED_HALF,
    PREPARED,
)
from tern_wire.settings.producer_settings import SETTINGS
from tern_wire.transactions import (
    BY_CHECK,
    BY_CLIENT,
    BY_HAND,
    COMMIT,
    END_ROW,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    OTHER_OUTCOME,
    ROLLBACK,
    TRANSACTION_UNKNOWN,
)
from tests.support.broker.half_messages import TransactionLog, facts, half_payload


def again(state: StateMachine) -> StateMachine:
    """Saved and loaded."""
    return saving.load(b"".join(saving.encode(saving.take(state))))


def described(log: TransactionLog, number: int) -> dict[str, Any]:
    """What the state says of a transaction."""
    return describe_transaction(log.state.transactions, log.state.names, number, log.p)


def test_a_half_message_is_stored_and_nobody_sees_it_before_its_commit() -> None:
    """No append, no topic woken; the commit appends the entry that points at the record, and wakes."""
    log = TransactionLog()
    applied = log.apply(1_000, (CommandKind.SEND, half_payload(log.p, ((log.t, 1, b"half"),))))
    verdicts = applied.verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == [PREPARED]
    number = int(verdicts["offset"][0])
    assert number >> 20 == len(log.bodies)
    assert (applied.appends, applied.woken_topics, applied.timers) == ([], set(), [])
    assert log.state.names.topics["t"].ends == [0, 0]
    assert described(log, number) == {
        "number": number,
        "producer_group": "p",
        "producer_group_id": log.p,
        "state": "open",
        "begun_ms": 1_000,
        "check_at_ms": 7_000,
        "attempts": 0,
        "ended_ms": 0,
        "by": "",
        "reason": "",
        "message_count": 1,
        "checks": [],
        "messages": [["t", 1, 96, -1]],
    }
    log.send(2_000, (log.t, 1, b"x", b""))
    rows = END_ROW.pack(number, 0, log.p, COMMIT, BY_CLIENT)
    applied = log.apply(3_000, (CommandKind.END_TRANSACTIONS, rows))
    assert applied.woken_topics == {log.t}
    verdicts = applied.verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts.tolist() == [(ENDED, COMMIT, 1, 1, log.t, BY_CLIENT, 1)]
    position = log.places(log.t, 1)[1]
    record = b"".join(log.bodies)[position - 100 :]
    assert record[4:8] == bytes.fromhex("DAA320A7")
    assert record[88:92] == b"half"
    assert [records["position"].tolist() for records in applied.committed] == [[position]]
    ended = described(log, number)
    assert (ended["state"], ended["ended_ms"], ended["by"], ended["messages"]) == (
        "committed",
        3_000,
        "client",
        [["t", 1, 96, 1]],
    )


def test_an_end_is_told_again_and_the_other_one_is_refused() -> None:
    """The same facts as the first time, in the same entry and later; nothing becomes visible twice."""
    log = TransactionLog()
    number, other = log.begin_one(1_000), log.begin_one(1_000)
    first, second, refused = log.end(2_000, number, number), None, None
    assert first["status"].tolist() == [ENDED, ENDED_BEFORE]
    second, refused = log.end(3_000, number, by=BY_CHECK), log.end(3_001, number, outcome=ROLLBACK)
    assert (second["status"][0], refused["status"][0]) == (ENDED_BEFORE, OTHER_OUTCOME)
    for name in ("outcome", "queue", "messages", "topic", "by", "offset"):
        assert first[name][1] == second[name][0] == refused[name][0] == first[name][0]
    rolled = [log.end(4_000, other, outcome=ROLLBACK)[0].item() for _ in range(2)]
    assert [rolled[0][0], rolled[1][0]] == [ENDED, ENDED_BEFORE]
    assert rolled[0][1:] == rolled[1][1:] == (ROLLBACK, 0, 1, log.t, BY_CLIENT, -1)
    assert log.end(4_000, other)["status"].tolist() == [OTHER_OUTCOME]
    assert log.places(log.t, 0) != []
    assert len(log.places(log.t, 0)) == 1
    stats = log.state.producers.by_id[log.p].describe()["stats"]
    assert stats == {"open": 0, "expired": 0, "committed": 1, "rolled_back": 1, "checks": 0}


def test_both_ends_in_one_entry_are_decided_by_their_order() -> None:
    """Whichever comes first wins; the other is refused at once."""
    log = TransactionLog()
    number = log.begin_one(1_000)
    rows = [END_ROW.pack(number, 0, log.p, outcome, BY_CLIENT) for outcome in (ROLLBACK, COMMIT, ROLLBACK)]
    verdicts = log.apply(2_000, (CommandKind.END_TRANSACTIONS, b"".join(rows))).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == [ENDED, OTHER_OUTCOME, ENDED_BEFORE]
    assert log.places(log.t, 0) == []


def test_what_is_not_known_is_said_so() -> None:
    """Numbers of nobody, of another producer group, and of one that another group has."""
    log = TransactionLog()
    number, other = log.begin_one(1_000), log.producer_group("q")
    assert log.end(2_000, number, group=other)["status"].tolist() == [TRANSACTION_UNKNOWN]
    assert log.end(2_000, number + 1, 0, -5)["status"].tolist() == [TRANSACTION_UNKNOWN] * 3
    log.end(2_000, number)
    assert log.end(3_000, number, group=other)["status"].tolist() == [TRANSACTION_UNKNOWN]
    with pytest.raises(TransactionUnknown):
        describe_transaction(log.state.transactions, log.state.names, number, other)


def test_a_transaction_of_several_messages_appears_whole_over_topics() -> None:
    """One append of one entry, each queue at its end then; two transactions of one entry keep their messages apart."""
    log = TransactionLog()
    first = ((log.t, 0, b"a"), (log.u, 0, b"b"), (log.t, 1, b"c"), (log.t, 0, b"d"))
    second = ((log.u, 0, b"e"), (log.t, 0, b"f"))
    statuses, numbers = log.begin(1_000, first, second)
    assert statuses == [PREPARED] * 6
    assert numbers == [numbers[0]] * 4 + [numbers[0] + 1] * 2
    log.send(1_500, (log.t, 0, b"x", b""))
    applied = log.apply(
        2_000,
        (
            CommandKind.END_TRANSACTIONS,
            b"".join(
                END_ROW.pack(number, 0, log.p, COMMIT, BY_CLIENT) for number in sorted(set(numbers), reverse=True)
            ),
        ),
    )
    assert len(applied.appends) == 1
    verdicts = applied.verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts[["messages", "topic", "queue", "offset"]].tolist() == [(2, log.u, 0, 0), (4, log.t, 0, 2)]
    stored = b"".join(log.bodies)
    bodies = {
        key: [stored[entry[0] - 100 + 88 : entry[0] - 100 + 89] for entry in entries]
        for key, entries in log.queues.items()
    }
    assert bodies == {(log.t, 0): [b"x", b"f", b"a", b"d"], (log.t, 1): [b"c"], (log.u, 0): [b"e", b"b"]}


def test_messages_of_a_deleted_topic_are_dropped_and_the_others_appear() -> None:
    """Also when all of them are: then the transaction is committed all the same, and nothing is visible."""
    log = TransactionLog()
    _, numbers = log.begin(1_000, ((log.u, 0, b"a"), (log.t, 1, b"b")), ((log.u, 0, b"c"),))
    log.ask(1_500, CommandKind.DELETE_TOPIC, topic="u", topic_id=log.u)
    described_open = described(log, numbers[0])
    assert described_open["messages"] == [["", 0, 93, -1], ["t", 1, 93, -1]]
    verdicts = log.end(2_000, numbers[0], numbers[2])
    assert verdicts[["status", "messages", "topic", "queue", "offset"]].tolist() == [
        (ENDED, 1, log.t, 1, 0),
        (ENDED, 0, log.u, 0, -1),
    ]
    assert log.end(3_000, numbers[2])[0].item()[1:] == verdicts[1].item()[1:]


def test_everything_is_there_again_after_a_restart() -> None:
    """Open, claimed, parked and ended ones, keys, texts, producer groups: the loaded state is the same, and decides the same."""
    log = TransactionLog(max_checks=1, check_after_ms=100, check_interval_ms=100)
    numbers = [log.begin_one(1_000 + n, key=b"%d" % n) for n in range(12)]
    log.end(1_050, numbers[0], numbers[1])
    claimed = log.claim(1_200, count=6, checker="c1")
    log.report(1_250, *((number, claim) for number, claim, _ in claimed[:3]), answer="http-503")
    log.apply(1_400)
    log.resolve(1_450, claimed[0][0], ROLLBACK, "nobody knows")
    loaded = again(log.state)
    assert facts(loaded) == facts(log.state)
    assert loaded.producers.by_id[log.p].describe() == log.state.producers.by_id[log.p].describe()
    rows = b"".join(END_ROW.pack(number, 0, log.p, COMMIT, BY_CLIENT) for number in numbers)
    claim = {"producer_group": "p", "checker": "c2", "max": 5, "claim_ms": 10, "max_bytes": 500}
    commands: list[tuple[CommandKind, Parts]] = [
        (CommandKind.CLAIM_CHECKS, [encode_msgpack(claim)]),
        (CommandKind.SEND, [half_payload(log.p, ((log.t, 0, b"m"),), key=b"3")]),
        (CommandKind.END_TRANSACTIONS, [rows]),
    ]
    for now_ms in (1_451, 2_600, 2_700):
        entry = memoryview(b"".join(entry_parts(now_ms, commands)))
        live, replayed = (state.apply(entry, 10_000, 50) for state in (log.state, loaded))
        for one, two in zip(live.verdicts, replayed.verdicts, strict=True):
            assert encode_msgpack(one if isinstance(one, dict) else one.tobytes()) == encode_msgpack(  # type: ignore[union-attr]
                two if isinstance(two, dict) else two.tobytes()  # type: ignore[union-attr]
            )
        assert facts(loaded) == facts(log.state)
        assert loaded.digest == log.state.digest


def test_a_copy_moves_the_records_of_what_has_not_ended() -> None:
    """By number and ordinal; what has ended since is passed over. The commit points at the copies."""
    log = TransactionLog()
    _, numbers = log.begin(1_000, ((log.t, 0, b"a"), (log.t, 1, b"b")), ((log.t, 0, b"c"),))
    table = log.state.transactions.table
    rows, positions = table.records_below(1 << 40)
    assert rows["kind"].tolist() == [MOVED_HALF] * 3
    assert rows[["number", "deliver_ms", "queue"]].tolist() == [
        (numbers[0], 0, 0),
        (numbers[0], 1, 1),
        (numbers[2], 0, 0),
    ]
    assert len(table.records_below(int(positions[1]))[0]) == 1
    log.end(1_500, numbers[2], outcome=ROLLBACK)
    stored = b"".join(log.bodies)
    records = b"".join(stored[at - 100 : at - 100 + size] for at, size in zip(positions, rows["size"], strict=True))
    end = log.position
    applied = log.apply(2_000, (CommandKind.COPY, SEND_HEAD.pack(3, 0) + rows.astype(MOVE_ROWS).tobytes() + records))
    moved = applied.moves[0].positions.tolist()
    assert min(moved) > end
    log.end(3_000, numbers[0])
    assert (log.places(log.t, 0), log.places(log.t, 1)) == (moved[:1], moved[1:2])
    assert len(table.records_below(1 << 40)[0]) == 0


def test_outcomes_are_remembered_for_the_last_ones_and_no_more() -> None:
    """Looked for in any order; the oldest block goes when the last is full, and the size of all is bounded."""
    outcomes = Outcomes()
    count = OUTCOMES_KEPT_MAX + 2 * BLOCK_ROWS + 5
    rng = np.random.default_rng(7)
    numbers = rng.permutation(count) + 1
    for number in numbers.tolist():
        outcomes.add((number, 1, 2, number % 7, 3, 4, 5, 6, 7, 8, 9, COMMIT << 4 | BY_HAND))
    assert OUTCOMES_KEPT_MAX <= len(outcomes) < OUTCOMES_KEPT_MAX + BLOCK_ROWS
    for number in rng.choice(numbers[-OUTCOMES_KEPT_MAX:], 200).tolist():
        found = outcomes.find(number)
        assert found is not None
        assert (found["number"], found["offset"], found["how"]) == (number, number % 7, COMMIT << 4 | BY_HAND)
    assert all(outcomes.find(number) is None for number in (*numbers[:BLOCK_ROWS:97].tolist(), 0, count + 1))
    assert sum(memoryview(part).nbytes for part in outcomes.pack()) <= 16 << 20
    loaded = Outcomes()
    loaded.unpack([bytes(part) for part in outcomes.pack()])
    assert len(loaded) == len(outcomes)
    assert [loaded.find(number) == outcomes.find(number) for number in numbers[-20_000::501].tolist()] == [True] * 40
    assert OUTCOMES.itemsize * (OUTCOMES_KEPT_MAX + BLOCK_ROWS) <= 16 << 20


def test_a_page_of_transactions_is_in_order_and_chosen_by_group_state_and_age() -> None:
    """Each page begins behind the last one's end; `more` says whether there is another."""
    log = TransactionLog(max_checks=1, check_after_ms=100, check_interval_ms=100)
    other = log.producer_group("q")
    numbers = [
        log.begin_one(1_000 + n, group=other if n % 3 == 0 else log.p, check_after_ms=5_000 if n > 5 else 0)
        for n in range(10)
    ]
    parked = [number for number, _, _ in log.claim(1_105, claim_ms=1)]
    log.claim(1_110, claim_ms=1)
    log.apply(1_120)
    log.apply(1_230)

    def page(**chosen: Any) -> tuple[list[int], bool]:
        request = {
            "namespace": "",
            "producer_group_id": 0,
            "state": "",
            "begun_before_ms": 9_999,
            "after": 0,
            "limit": 100,
            **chosen,
        }
        found = list_transactions(log.state.transactions, log.state.names, **request)
        return [one["number"] for one in found["transactions"]], found["more"]

    assert page() == (numbers, False)
    assert page(limit=4) == (numbers[:4], True)
    assert page(limit=6, after=numbers[3]) == (numbers[4:], False)
    assert page(producer_group_id=other) == (numbers[::3], False)
    assert page(begun_before_ms=1_003) == (numbers[:4], False)
    assert page(state="expired") == (sorted(parked), False)
    assert parked == [numbers[number] for number in (1, 2, 4, 5)]
    assert page(state="open") == (sorted(set(numbers) - set(parked)), False)


def test_a_reason_is_kept_with_the_end_whoever_gave_it() -> None:
    """A client's reason ends what is open, as its client; what has expired only a person ends. Other texts do not push it out."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=100, max_checks=1)
    first, second = log.begin_one(1_000), log.begin_one(1_000)
    request = {"producer_group_id": log.p, "outcome": ROLLBACK, "reason": "no such account"}
    ended = log.ask(1_010, CommandKind.RESOLVE_TRANSACTION, number=first, by=BY_CLIENT, **request)
    assert (ended["status"], ended["by"]) == (ENDED, BY_CLIENT)
    again = log.ask(1_011, CommandKind.RESOLVE_TRANSACTION, number=first, by=BY_CLIENT, **{**request, "reason": "x"})
    assert (again["status"], again["by"]) == (ENDED_BEFORE, BY_CLIENT)
    log.apply(1_100)
    log.apply(1_200)
    late = log.ask(1_300, CommandKind.RESOLVE_TRANSACTION, number=second, by=BY_CLIENT, **request)
    assert late["status"] == EXPIRED_BEFORE
    for wrong in (0, 2, 4, True, "client"):
        refused = log.ask(1_300, CommandKind.RESOLVE_TRANSACTION, number=second, by=wrong, **request)
        assert isinstance(refused, InvalidField)
    for number in range(CHECK_TEXTS_MAX + 1):
        log.state.transactions.texts.number(f"checker {number}")
    log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    found = described(log, first)
    assert (found["reason"], found["by"], found["state"]) == ("no such account", "client", "rolled-back")


def test_of_two_changes_of_a_producer_group_the_later_one_counts_everywhere() -> None:
    """The broker group that decides counts revisions; another gets copies, in any order and perhaps twice."""
    deciding, copying = TransactionLog(), TransactionLog()

    def alter(log: TransactionLog, **change: Any) -> dict[str, Any]:
        found: dict[str, Any] = log.ask(1, CommandKind.ALTER_PRODUCER_GROUP, producer_group="q", create=True, **change)
        return found

    secrets = ["whsec_" + letter * 32 for letter in "AB"]
    url = {"check_url": "http://a/c"}
    first, second = (
        alter(deciding, **url, least_revision=1, fresh_secret=secret, max_checks=3 + number)
        for number, secret in enumerate(secrets)
    )
    assert [first["check_secret"], second["check_secret"]] == [secrets[0], secrets[0]], "what is there stays"
    assert (first["revision"], second["revision"]) == (1, 2)
    alter(copying)
    for decided in (second, first, second):
        copy = {name: decided[name] for name in SETTINGS}
        shown = alter(copying, **copy, revision=decided["revision"])
        assert {name: shown[name] for name in SETTINGS} == {name: second[name] for name in SETTINGS}
    copying.state = saving.load(b"".join(saving.encode(saving.take(copying.state))))
    assert alter(copying)["revision"] == 2
    assert alter(copying, least_revision=9)["revision"] == 9
    for wrong in (-1, 1 << 53, "1", True):
        assert isinstance(alter(copying, revision=wrong), InvalidField)


def test_a_producer_group_is_deleted_when_nothing_of_it_is_left() -> None:
    """Its name is free again, its id is not; what it has ended is still told."""
    log = TransactionLog()
    number = log.begin_one(1_000)
    busy = log.ask(1_001, CommandKind.DELETE_PRODUCER_GROUP, producer_group="p")
    assert isinstance(busy, ProducerGroupBusy)
    assert busy.fields == {"producer_group": "p", "open": 1, "expired": 0}
    log.end(1_002, number)
    assert log.ask(1_003, CommandKind.DELETE_PRODUCER_GROUP, producer_group="p") == {"deleted": True}
    assert log.ask(1_004, CommandKind.DELETE_PRODUCER_GROUP, producer_group="p") == {"deleted": False}
    assert described(log, number)["producer_group"] == ""
    assert log.end(1_005, number)["status"].tolist() == [ENDED_BEFORE]
    assert log.producer_group("p") != log.p
    assert isinstance(
        log.ask(1_006, CommandKind.ALTER_PRODUCER_GROUP, producer_group="new", create=False), ProducerGroupNotFound
    )
