"""Heads of link requests and replies: what a peer of another release may say, and what is refused."""

import importlib
import pkgutil
from collections import Counter
from typing import Any, get_args, get_origin

import msgspec
import pytest

import tern_wire.link
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.heads import LinkReply, LinkRequest, head_parts, read_head
from tern_wire.link.requests import HEAD_SIZE
from tern_wire.link.scheduled import ListScheduled, Scheduled, ScheduledMessage

ASKED = ListScheduled(topic="orders", begin_ms=1, end_ms=2, count=3, after=(0, -1))


def requests() -> list[type[LinkRequest[Any]]]:
    """Every request of the folder."""
    for module in pkgutil.walk_packages(tern_wire.link.__path__, "tern_wire.link."):
        importlib.import_module(module.name)
    found: list[type[LinkRequest[Any]]] = []
    unseen = [*LinkRequest.__subclasses__()]
    while unseen:
        kind = unseen.pop()
        unseen += kind.__subclasses__()
        if "code" in vars(kind):
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__name__)


def body(head: Any, raw: bytes = b"") -> bytes:
    """A body with any head."""
    packed = msgspec.msgpack.encode(head)
    return HEAD_SIZE.pack(len(packed)) + packed + raw


def fields(**other: Any) -> dict[str, Any]:
    """ASKED as a map, with *other* values."""
    return {"topic": "orders", "begin_ms": 1, "end_ms": 2, "count": 3, "after": [0, -1], **other}


@pytest.mark.parametrize("kind", requests(), ids=lambda kind: kind.__name__)
def test_a_request_names_the_reply_that_its_type_names(kind: type[LinkRequest[Any]]) -> None:
    """So a caller gets what mypy was told."""
    (named,) = {get_args(base)[0] for base in kind.__orig_bases__ if issubclass(get_origin(base), LinkRequest)}  # type: ignore[attr-defined]
    assert kind.reply is named
    assert issubclass(named, LinkReply)


def test_a_code_has_one_request_or_several_that_a_tag_tells_apart() -> None:
    """And every public request and reply says what it is for."""
    for kind in requests():
        assert kind.__doc__, kind
    counts = Counter(kind.code for kind in requests())
    for kind in requests():
        assert counts[kind.code] == 1 or kind.__struct_config__.tag is not None, kind


def test_head_and_raw_bytes_come_back() -> None:
    """A list of rows travels as arrays, as they always did."""
    said, raw = read_head(ListScheduled, b"".join(head_parts(ASKED, [b"raw", b"bytes"])))
    assert (said, bytes(raw)) == (ASKED, b"rawbytes")
    message = ScheduledMessage(1, 2, 3, "id", "tag", "a b", 4, 5)
    answer = Scheduled(messages=[message], next=None)
    data = b"".join(head_parts(answer))
    assert read_head(Scheduled, data)[0] == answer
    assert msgspec.msgpack.decode(data[HEAD_SIZE.size :])["messages"] == [[1, 2, 3, "id", "tag", "a b", 4, 5]]


def test_what_a_newer_peer_says_besides_is_passed_over() -> None:
    """A field that this release does not know, and one more column of a row."""
    assert read_head(ListScheduled, body(fields(colour="red")))[0] == ASKED
    row = [1, 2, 3, "id", "", "", 4, 5, "more"]
    assert read_head(Scheduled, body({"messages": [row], "next": None}))[0].messages[0].body_size_bytes == 5


@pytest.mark.parametrize(
    "head",
    [
        {name: value for name, value in fields().items() if name != "count"},
        fields(count="3"),
        fields(count=0),
        fields(count=10**9),
        fields(begin_ms=-1),
        fields(after=[0]),
        fields(topic=b"orders"),
        fields(topic=None),
        [],
        None,
        7,
    ],
)
def test_what_is_missing_or_of_another_type_or_size_is_refused(head: Any) -> None:
    """With the name of the request, for whoever reads the log."""
    with pytest.raises(LinkBodyMalformed, match="ListScheduled: "):
        read_head(ListScheduled, body(head))


@pytest.mark.parametrize(
    "data", [b"", b"\x01\x00\x00", b"\x09\x00\x00\x00\x80", b"\x01\x00\x00\x00\xc1", b"\x02\x00\x00\x00\xa1\xff"]
)
def test_what_is_no_head_is_refused(data: bytes) -> None:
    """Too short, cut off, and no MessagePack."""
    with pytest.raises(LinkBodyMalformed):
        read_head(ListScheduled, data)
