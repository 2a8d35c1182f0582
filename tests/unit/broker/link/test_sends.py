"""What a broker refuses to propose: rows that do not describe their records."""

import contextlib
import random
from typing import Any

import pytest

from tern_broker.link import checked_send
from tern_broker.link.checked_send import UNKNOWN_TOPIC_ID, check_send
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.heads import read_head
from tern_wire.link.requests import body_parts
from tern_wire.link.rows import FLAG_HALF, NO_KEY, SEND_ROW
from tern_wire.link.sends import Send
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tests.support.broker.entries import Log


def message(queue: int = 1, tag: str = "A", topic: str = "t", lie: dict[str, int] | None = None) -> tuple[bytes, bytes]:
    """Row and record; *lie* overrides what the row says."""
    record = encode_record(
        topic.encode(), queue, b"body", encode_properties(system_properties("ID", tag, ["k"], "")), born_ms=7
    )
    crc = int.from_bytes(record[8:12], "big")
    facts = {"size": len(record), "topic": 0, "queue": queue, "tag": tag_hash(tag) if tag else 0, "crc": crc} | (
        lie or {}
    )
    packed = SEND_ROW.pack(
        facts["size"], facts["topic"], facts["queue"], 0, facts["tag"], facts["crc"], 0, NO_KEY, 0, 0
    )
    return packed, record


def check(*messages: tuple[bytes, bytes], topics: Any = None, rows: Any = None, extra: bytes = b"") -> Any:
    """Check a request of *messages*."""
    log = Log()
    log.create()
    raw = b"".join(row for row, _ in messages) + b"".join(record for _, record in messages) + extra
    head = {"topics": ["t"] if topics is None else topics, "rows": len(messages) if rows is None else rows}
    request, behind = read_head(Send, b"".join(body_parts(head, [raw])))
    return check_send(request, behind, log.state, random.Random(1))


def test_good_rows_get_topic_ids_and_records_are_stamped_with_time_and_host() -> None:
    """Names become ids; an unknown name becomes an id that no topic has."""
    send = check(message(), message(tag=""), message())
    assert send.rows["topic"].tolist() == [1, 1, 1]
    records = send.payload(1234, bytes(8))[2]
    assert [decode_record(records, int(start)).stored_ms for start in send.starts] == [1234] * 3
    unknown = check(message(topic="nobody"), topics=["nobody"])
    assert unknown.rows["topic"].tolist() == [UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(
    "wrong",
    [{"size": 5}, {"topic": 1}, {"queue": 2}, {"tag": 99}, {"crc": 1}],
    ids=["size", "topic", "queue", "tag", "crc"],
)
def test_a_row_that_lies_about_its_record_is_refused(wrong: dict[str, int]) -> None:
    """Each field of the row is derived again from the record."""
    with pytest.raises(LinkBodyMalformed):
        check(message(lie=wrong))


@pytest.mark.parametrize(
    ("rows", "topics", "extra"),
    [
        (0, ["t"], b""),
        (2, ["t"], b""),
        (-1, ["t"], b""),
        ("1", ["t"], b""),
        (1, "t", b""),
        (1, [1], b""),
        (1, ["t"], b"x"),
    ],
)
def test_heads_and_sizes_that_do_not_add_up_are_refused(rows: Any, topics: Any, extra: bytes) -> None:
    """Counts, kinds, bytes behind the last record."""
    with pytest.raises(LinkBodyMalformed):
        check(message(), rows=rows, topics=topics, extra=extra)


def test_a_record_without_the_magic_is_refused() -> None:
    """Every boundary is looked at, not only the random one."""
    row, record = message()
    with pytest.raises(LinkBodyMalformed):
        check(message(), (row, record[:4] + b"\0" + record[5:]), message())


ODD = [
    [{}],
    [{"size": 5}],
    [{"topic": 1}],
    [{"queue": 2}],
    [{"crc": 1}],
    [{"size": 1 << 31}],
    [{}, {"size": 10}, {}],
    [{"tag": 99}],
]


@pytest.mark.parametrize("lies", ODD)
def test_rows_checked_one_by_one_and_with_arrays_are_refused_and_taken_alike(
    monkeypatch: pytest.MonkeyPatch, lies: list[dict[str, int]]
) -> None:
    """Rows, records, starts and flags, or the text of the refusal."""
    found: list[Any] = []
    for most in (0, 32):
        monkeypatch.setattr(checked_send, "CHECKED_ROWS_ONE_BY_ONE_MAX", most)
        try:
            send = check(*(message(lie=lie) for lie in lies))
            found.append((send.rows.tobytes(), bytes(send.records), send.starts.tolist(), send.flags))
        except LinkBodyMalformed as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("plain", [True, False])
def test_only_plain_rows_are_checked_one_by_one(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """A flag of a half message, or a row of a producer group, is for the arrays."""
    asked: list[bool] = []
    check_all = checked_send._check_all

    def noted(*arguments: Any) -> Any:
        asked.append(True)
        return check_all(*arguments)

    monkeypatch.setattr(checked_send, "_check_all", noted)
    row, record = message()
    if not plain:
        fields = list(SEND_ROW.unpack(row))
        fields[3] = FLAG_HALF
        row = SEND_ROW.pack(*fields)
    with contextlib.suppress(LinkBodyMalformed, IndexError):
        check((row, record))
    assert asked == ([] if plain else [True])
