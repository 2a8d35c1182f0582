"""What travels about dead letters and redrives: rows, pages, operations told apart, and what is out of range."""

from typing import Any, cast

import msgspec
import pytest

from tern_wire.dead_letters import Selection
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S, SETTLE_ENTRIES_MAX
from tern_wire.link.dead_letters.letters import (
    DeadLetter,
    DeadLetters,
    ListDeadLetters,
    RejectedMessage,
    RejectMessages,
)
from tern_wire.link.dead_letters.redrive import CancelRedrive, GetRedrive, Redrive, RedriveSelection, StartRedrive
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.requests import body_parts, read_body

START = StartRedrive(task="a", group="g", selection=RedriveSelection(**Selection().pack()), rate=0, dry_run=False)
LISTED = {
    "group": "g",
    "offset": 0,
    "count": 1,
    "max_bytes": 1,
    "topic": "",
    "tag": "",
    "reason": "",
    "from_ms": 0,
    "to_ms": 0,
}


def body(head: dict[str, Any]) -> bytes:
    """A body with any head."""
    return b"".join(body_parts(head))


def told_apart(data: bytes) -> Redrive:
    """The request in *data*, which its op names."""
    request, _ = read_head(cast(Any, Redrive), data)
    return cast(Redrive, request)


def test_rejected_messages_travel_as_rows() -> None:
    """At least one, and no more than a settle has; a row may get more columns, and none is missing."""
    row = RejectedMessage(1, 2, 3, 4, 5, "no such shop")
    data = b"".join(head_parts(RejectMessages(rows=[row])))
    assert read_body(data)[0] == {"rows": [[1, 2, 3, 4, 5, "no such shop"]]}
    assert read_head(RejectMessages, body({"rows": [[1, 2, 3, 4, 5, "no such shop", "more"]]}))[0].rows == [row]
    for rows in ([], [[1, 2, 3, 4, 5]], [[1, 2, 3, 4, "5", ""]], [[1, 2, 3, 4, 5, ""]] * (SETTLE_ENTRIES_MAX + 1)):
        with pytest.raises(LinkBodyMalformed):
            read_head(RejectMessages, body({"rows": rows}))


def test_dead_letters_travel_as_rows() -> None:
    """In the order of old."""
    letter = DeadLetter(17, "orders", 3, 4, 16, "nacked", "why", 5, 6)
    data = b"".join(head_parts(DeadLetters(letters=[letter], next=-1, count=1)))
    row = [17, "orders", 3, 4, 16, "nacked", "why", 5, 6]
    assert read_body(data)[0] == {"letters": [row], "next": -1, "count": 1}
    assert read_head(DeadLetters, body({"letters": [[*row, 7]], "next": -1, "count": 1}))[0].letters == [letter]


@pytest.mark.parametrize(
    "lie", [{"offset": -1}, {"offset": 1 << 62}, {"count": 0}, {"count": DEAD_LETTERS_PAGE_MAX + 1}, {"max_bytes": 0}]
)
def test_a_page_that_there_cannot_be_is_refused(lie: dict[str, int]) -> None:
    """And one with *offsets*, which older proxies send along, is not."""
    assert read_head(ListDeadLetters, body({**LISTED, "offsets": None}))[0].group == "g"
    with pytest.raises(LinkBodyMalformed):
        read_head(ListDeadLetters, body({**LISTED, **lie}))


@pytest.mark.parametrize("asked", [START, CancelRedrive(task="a"), GetRedrive(task="a")])
def test_what_is_asked_of_redrives_is_told_apart_by_its_op(asked: Redrive) -> None:
    """A cancel and a get have the same fields."""
    assert told_apart(b"".join(head_parts(asked))) == asked
    with pytest.raises(LinkBodyMalformed):
        told_apart(body({"op": "stop", "task": "a"}))


def test_a_selection_is_said_whole() -> None:
    """What is left out would mean all: nobody may leave anything out, not even that there are no offsets."""
    selections = (Selection(), Selection(topic="t", tag="a", reason="r", from_ms=1, to_ms=2, offsets=(3, 1)))
    for selection in selections:
        data = b"".join(head_parts(msgspec.structs.replace(START, selection=RedriveSelection(**selection.pack()))))
        assert read_body(data)[0]["selection"] == selection.pack()
        told = told_apart(data)
        assert isinstance(told, StartRedrive)
        assert Selection.unpack(msgspec.structs.asdict(told.selection)) == selection
    head = read_body(b"".join(head_parts(START)))[0]
    for name in Selection().pack():
        less = {key: value for key, value in head["selection"].items() if key != name}
        with pytest.raises(LinkBodyMalformed):
            told_apart(body({**head, "selection": less}))


def test_a_redrive_of_too_many_or_too_fast_is_refused() -> None:
    """The proxy has checked both."""
    head = read_body(b"".join(head_parts(START)))[0]
    many = {**head["selection"], "offsets": list(range(REDRIVE_OFFSETS_MAX + 1))}
    for lie in ({"rate": -1}, {"rate": REDRIVE_RATE_MAX_PER_S + 1}, {"selection": many}, {"dry_run": 1}):
        with pytest.raises(LinkBodyMalformed):
            told_apart(body({**head, **lie}))
