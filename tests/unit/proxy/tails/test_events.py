"""Events of tails as bytes: what an EventSource and a reader of lines make of them."""

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.documents.tails import MESSAGE, SKIPPED
from tern_proxy.core.reading.delivery import put_fitting
from tern_proxy.core.tailing.events import Lines, ServerSent, data_of, on_one_line
from tern_wire.paths import JSON
from tests.support.event_stream import EventStream, SentEvent

ID = "1-AAAA"


def message(body: bytes, content_type: str = "") -> ReadMessage:
    """A stored message."""
    found = ReadMessage(message_id="m" * 32, topic="orders", queue="broker-a:0", offset=7, born_at=1, stored_at=2)
    put_fitting(found, body, content_type)
    return found


@given(some.binary(max_size=60) | some.text(max_size=60).map(str.encode), some.sampled_from(["", JSON]))
@settings(max_examples=200, deadline=None)
def test_any_body_is_one_event(body: bytes, content_type: str) -> None:
    """In both forms, with nothing lost: the data is the document of a pull."""
    document = message(body, content_type)
    expected = orjson.loads(msgspec.json.encode(document))
    data = data_of(document)
    stream = EventStream()
    stream.feed(ServerSent().event(MESSAGE, data, ID))
    assert [(each.name, orjson.loads(each.data), each.last_event_id) for each in stream.events] == [
        ("message", expected, ID)
    ]
    (line,) = Lines().event(MESSAGE, data, ID).splitlines()
    assert orjson.loads(line) == {"event": "message", "id": ID, "data": expected}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\n", "\r\r", "\n\nid: 1-evil\ndata: forged\n\n"])
def test_no_body_can_begin_an_event(end: str) -> None:
    """Line ends within texts are escaped, and those between the values of a body that is JSON are blanks."""
    for body in (f'{{"a":{end[:2]}1, "b": 2}}' if end.isspace() else "[1]", f"text{end}more"):
        sent = ServerSent().event(MESSAGE, data_of(message(body.encode(), JSON)), ID)
        assert EventStream().feed(sent)[0].data == sent.decode().split("data: ", 1)[1].removesuffix("\n\n")
        assert len(EventStream().feed(sent)) == 1


def test_a_start_sets_the_place_and_says_nothing() -> None:
    """An EventSource that loses its connection before the first message continues where it began."""
    stream = EventStream()
    assert stream.feed(ServerSent().start(ID)) == []
    assert (stream.last_event_id, stream.retry_ms) == (ID, 1_000)
    assert orjson.loads(Lines().start(ID)) == {"event": "start", "id": ID}


def test_a_sign_of_life_is_a_comment_and_may_have_a_place() -> None:
    """As where a filter has passed over messages: they are not read again."""
    stream = EventStream()
    stream.feed(ServerSent().event(SKIPPED, b"{}", ID))
    assert stream.feed(ServerSent().keep_alive()) == []
    assert (stream.comments, stream.last_event_id) == ([" keep-alive"], ID)
    assert stream.feed(ServerSent().keep_alive("1-BBBB")) == []
    assert stream.last_event_id == "1-BBBB"
    assert stream.events == [SentEvent("skipped", "{}", ID)]
    lines: list[Any] = [orjson.loads(Lines().keep_alive(each)) for each in ("", ID)]
    assert lines == [{"event": "keep-alive"}, {"event": "keep-alive", "id": ID}]


def test_data_on_one_line_stays_as_it_is() -> None:
    """And is not copied."""
    data = b'{"a":1}'
    assert on_one_line(data) is data
