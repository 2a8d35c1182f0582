"""The checks of the chaos runs convict: a lost, doubled, misplaced or altered message, logs that differ; and outages are measured right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tern_store.log.entry import ORIGIN, EntryKind, encode_entry, verify
from tests.chaos.load import BODY_HEAD, Bodies, Event, Ledger, Load
from tests.chaos.outage import outage_of
from tests.chaos.verify import Findings, QueueReader, Stored, compare_logs
from tests.support.files import shared_log

SENT = 40
Harm = Callable[[list[Stored]], list[Stored]]


def made(*, is_keyed: bool = True) -> Load:
    """A load whose first sender has the receipts of 40 messages, in batches of 4."""
    load = Load([("127.0.0.1", 1)], seed=1, senders=1, batch=4, is_keyed=is_keyed)
    load.senders[0].batch = 4
    load.senders[0].acked = SENT
    return load


def found_in(load: Load, messages: list[Stored]) -> dict[str, int]:
    """What the reader of the queue says about *messages*; only what is wrong."""
    findings = Findings()
    reader = QueueReader(load, load.senders[0], findings)
    for message in messages:
        reader.take(message)
    reader.end()
    assert findings.read == len(messages)
    document = findings.document()
    wrong = {
        name: int(str(document[name])) for name in ("lost", "reordered", "duplicated", "unexpected", "wrong_bytes")
    }
    assert findings.is_clean is not any(wrong.values())
    return {name: count for name, count in wrong.items() if count}


def promised(load: Load) -> list[Stored]:
    """The queue as it must be."""
    return [Stored(number, load.bodies.body(0, number)) for number in range(SENT)]


def shifted(messages: list[Stored]) -> list[Stored]:
    """The same bodies at offsets without a gap."""
    return [Stored(offset, message.body) for offset, message in enumerate(messages)]


def test_a_queue_as_promised_is_clean() -> None:
    """Nothing is said about a queue that is as its sender knows it, nor when retention dropped its beginning."""
    load = made()
    assert found_in(load, promised(load)) == {}
    assert found_in(load, promised(load)[7:]) == {}


@pytest.mark.parametrize(
    ("harm", "wrong"),
    [
        (lambda queue: queue[:10] + queue[11:], {"lost": 1}),
        (lambda queue: shifted(queue[:10] + queue[13:]), {"lost": 3, "reordered": SENT - 14}),
        (lambda queue: queue[:-2], {"lost": 2}),
        (lambda queue: [], {"lost": SENT}),
        (lambda queue: shifted([*queue, queue[5]]), {"duplicated": 1}),
        (lambda queue: [*queue, Stored(SENT, Bodies(1, 256).body(0, SENT))], {"unexpected": 1}),
        (lambda queue: [*queue[:5], Stored(5, queue[5].body[:-1] + b"\0"), *queue[6:]], {"wrong_bytes": 1}),
        (lambda queue: [*queue[:5], Stored(5, b""), *queue[6:]], {"wrong_bytes": 1}),
        (lambda queue: [Stored(0, BODY_HEAD.pack(3, 0) + queue[0].body[12:]), *queue[1:]], {"wrong_bytes": 1}),
    ],
)
def test_each_harm_is_named(harm: Harm, wrong: dict[str, int]) -> None:
    """One harm to a queue that was as promised, and the kind and number of what is found."""
    load = made()
    assert found_in(load, harm(promised(load))) == wrong


def test_without_keys_a_batch_may_be_there_twice_but_not_late() -> None:
    """A repeated batch right behind itself is no harm, behind a later batch it is."""
    load = made(is_keyed=False)
    queue = promised(load)
    assert found_in(load, shifted(queue[:8] + queue[4:8] + queue[8:])) == {}
    assert found_in(load, shifted(queue[:12] + queue[4:8] + queue[8:])) == {"reordered": 1}
    assert found_in(load, shifted(queue[:8] + queue[9:])) == {"lost": 1}


def test_logs_that_differ_are_convicted(tmp_path: Path) -> None:
    """One byte before the end is a difference, one behind it is not; a segment that is missing is one."""
    nodes = [tmp_path / name for name in ("a", "b", "c")]
    for node in nodes:
        (node / "commitlog").mkdir(parents=True)
        (node / "commitlog" / f"{0:020d}").write_bytes(bytes(100))
        (node / "commitlog" / f"{100:020d}").write_bytes(bytes(100))
    assert compare_logs(nodes, 150) == (150, [])
    second = nodes[1] / "commitlog" / f"{100:020d}"
    second.write_bytes(bytes(60) + b"\1" + bytes(39))
    assert compare_logs(nodes, 150) == (150, [])
    second.write_bytes(bytes(49) + b"\1" + bytes(50))
    assert len(compare_logs(nodes, 150)[1]) == 1
    second.unlink()
    assert len(compare_logs(nodes, 150)[1]) == 1


def test_what_a_header_says_of_its_own_disk_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the parts that are compared cut the headers; anything else in header or body is one."""
    nodes = [tmp_path / "a" / "commitlog" / f"{0:020d}", tmp_path / "b" / "commitlog" / f"{0:020d}"]
    mark = ORIGIN
    for node in nodes:
        node.parent.mkdir(parents=True)
        node.touch()
    for index in range(1, 8):
        body = [bytes([index] * 30)]
        raws = [
            encode_entry(
                EntryKind.NOOP, index, 1, body, 1, position=mark.position, previous_crc=mark.crc, unsynced=own
            ).raw
            for own in (0, index)
        ]
        for node, raw in zip(nodes, raws, strict=True):
            node.write_bytes(node.read_bytes() + raw)
        mark = verify(raws[0]).mark
    directories = [tmp_path / "a", tmp_path / "b"]
    for size in range(1, 160):
        monkeypatch.setattr(shared_log, "PART_SIZE_BYTES", size)
        assert compare_logs(directories, 1 << 20) == (mark.position, [])
    good = nodes[1].read_bytes()
    for at in range(0, len(good), 7):
        nodes[1].write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert len(compare_logs(directories, 1 << 20)[1]) == 1, at


def test_an_outage_is_counted_from_its_first_effect_to_a_send_that_began_after_it() -> None:
    """Sends every 0.1 s, harm at 1.05: late sends count like failed ones, and a late answer to an old send does not end it."""
    steady = [Event(at / 10, at / 10 + 0.05, True) for at in range(10)]
    late = Event(1.0, 1.9, True)
    failed = Event(1.1, 1.6, False)
    first = Event(1.7, 2.0, True)
    figures = outage_of([*steady, late, failed, first], 1.05)
    assert figures["outage_s"] == 0.95
    assert figures["gap_s"] == 0.95
    assert figures["harm_to_accept_s"] == 0.85
    assert figures["failed_sends"] == 1
    assert figures["slowest_send_s"] == 0.9


def test_an_outage_without_an_end_has_no_figures() -> None:
    """No accept after the harm: the scenario has to say so, not a number."""
    assert outage_of([Event(0.0, 0.1, True), Event(0.2, 0.9, False)], 0.5) == {}


def test_a_ledger_keeps_count_but_not_everything() -> None:
    """What it remembers is bounded, what it counts is not."""
    ledger = Ledger()
    for number in range(100):
        ledger.violated(f"violation {number}")
    assert (ledger.violation_count, len(ledger.violations)) == (100, 20)
