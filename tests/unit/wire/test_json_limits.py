"""What a JSON document may hold beside what its type says: every quick answer agrees with the slow one."""

import json
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_proxy.core.documents.offsets import OffsetsCommit
from tern_proxy.core.documents.receives import AckRequest, ReceiveRequest, SettleRequest
from tern_proxy.core.documents.sends import JsonBatch, JsonMessage, PackedBatch
from tern_wire.errors import DocumentTooComplex, InvalidField, MalformedBody, TernError
from tern_wire.json_limits import check_depth, check_nodes, facts_of
from tern_wire.limits import JSON_DEPTH_MAX, JSON_NODES_MAX, PACKED_ELEMENTS_MAX
from tern_wire.link.codec import read_json, read_msgpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A document of a service, as name servers take them."""

    term: int
    topics: dict[str, dict[str, int]]


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (b'{"wait":0,"wait":1}', ReceiveRequest),
        (b'{"wait":0,"w\\u0061it":1}', ReceiveRequest),
        (b'{"attempt_id":"\\u003a","attempt_id":""}', ReceiveRequest),
        (b'{"attempt_id":"a:b","attempt_id":"::"}', ReceiveRequest),
        (b'{"filter":{"sql":"a","sql":"b"}}', ReceiveRequest),
        (b'{"receipt_handles":[],"receipt_handles":["a"]}', AckRequest),
        (b'{"topic":"t","offsets":{"a:1":1,"a:1":2}}', OffsetsCommit),
        (b'{"messages":[{"body":"a"}],"messages":[]}', JsonBatch),
        (b'{"messages":[{"body":"a"},{"body":"b","body":"c"}]}', JsonBatch),
        (b'{"messages":[{"body":"a","properties":{"x":"1","x":"2"}}]}', JsonBatch),
        (b'{"messages":[{"json":1,"json":{"a":1}}]}', JsonBatch),
        (b'{"messages":[{"json":{"a":1,"a":2},"tag":"a","tag":"b"}]}', JsonBatch),
        (b'{"body":"a","body":"b"}', JsonMessage),
        (b'{"term":1,"term":2,"topics":{}}', Told),
        (b'{"term":1,"topics":{"a":{"q":1,"q":1}}}', Told),
        (b'{"a":{"b":[[{"c":1,"c":1}]]}}', dict),
    ],
)
def test_a_member_given_twice_is_refused_by_name(document: bytes, kind: type[Any]) -> None:
    """At any depth, also when one of the names is escaped, and when colons in texts make up for the lost one."""
    with pytest.raises(InvalidField, match="given more than once"):
        read_json(document, kind)


@pytest.mark.parametrize(
    "document",
    [
        b'{"messages":[{"json":{"a":1,"a":2}}]}',
        b'{"messages":[{"tag":"","json":{"n":123456789012345678901234567890}}]}',
    ],
)
def test_json_inside_a_message_is_the_clients_own(document: bytes) -> None:
    """It is carried, not read: its members and digits stay as they are."""
    (message,) = read_json(document, JsonBatch).messages
    own: Any = message.json
    assert bytes(own) in document


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "9" * 40, "1" + "0" * 3_000])
@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ('{"max_messages":%s}', ReceiveRequest),
        ('{"topic":"t","offsets":{"q":%s}}', OffsetsCommit),
        ('{"term":%s,"topics":{}}', Told),
        ('{"a":[%s]}', dict),
    ],
)
def test_an_integer_beyond_64_bits_is_refused(number: str, document: str, kind: type[Any]) -> None:
    """Also where it is the only member, and too long for Python."""
    with pytest.raises(InvalidField):
        read_json((document % number).encode(), kind)


def test_integers_of_64_bits_and_long_texts_of_digits_are_taken() -> None:
    """The largest, the smallest, and what only looks like a number."""
    digits = "1234567890" * 5
    for number in ((1 << 64) - 1, -(1 << 63)):
        assert (
            read_json(b'{"max_messages":%d,"attempt_id":"%s"}' % (number, digits.encode()), ReceiveRequest).max_messages
            == number
        )


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"+1", b"01", b"0x1"])
def test_what_is_no_number_is_refused(number: bytes) -> None:
    """Wherever it stands, in messages too."""
    for document, kind in ((b'{"max_messages":%s}', ReceiveRequest), (b'{"a":%s}', dict)):
        with pytest.raises(TernError) as refused:
            read_json(document % number, kind)
        assert refused.value.status == 400
    if number != b"1e999":
        with pytest.raises(TernError):
            read_json(b'{"messages":[{"json":%s}]}' % number, JsonBatch)


def nested(depth: int) -> bytes:
    """Arrays in objects in arrays."""
    return b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)


def test_depth_is_counted_without_brackets_in_texts() -> None:
    """32 levels are taken, 33 are not, in a document and in a message."""
    brackets = b'"' + b"[{" * 100 + b'\\"["'
    check_depth(nested(JSON_DEPTH_MAX).replace(b"1", brackets))
    read_json(nested(JSON_DEPTH_MAX), dict)
    for check in (check_depth, lambda data: read_json(data, dict)):
        with pytest.raises(DocumentTooComplex, match="32 levels"):
            check(nested(JSON_DEPTH_MAX + 2).replace(b"1", brackets))
    with pytest.raises(TernError):
        read_json(b"[" * 100_000, dict)


def test_values_are_counted_before_anything_is_made_of_them() -> None:
    """10,000 values, the list itself among them, are taken, one more is not; commas in texts are none; another document may have another number."""
    most = b"[" + b"1," * (JSON_NODES_MAX - 2) + b"1]"
    check_nodes(most, JSON_NODES_MAX)
    check_nodes(orjson.dumps([",[{:" * JSON_NODES_MAX, '\\",,']), JSON_NODES_MAX)
    with pytest.raises(DocumentTooComplex, match=f"{JSON_NODES_MAX} values"):
        check_nodes(most[:-1] + b",1]", JSON_NODES_MAX)
    for document in (b"[" + b"{}," * JSON_NODES_MAX + b"{}]", b"[" * 3 * JSON_NODES_MAX):
        with pytest.raises(DocumentTooComplex):
            read_json(document, AckRequest)
    many = b'{"receipt_handles":[' + b'"a",' * JSON_NODES_MAX + b'"a"]}'
    assert len(read_json(many, AckRequest, nodes_max=2 * JSON_NODES_MAX).receipt_handles) == JSON_NODES_MAX + 1


@pytest.mark.parametrize(
    ("head", "element"),
    [
        (b"\x81\xa8messages\xdd", b"\x81\xa4body\xc4\x00"),
        (b"\x81\xa8messages\x91\x82\xa4body\xc4\x00\xa4keys\xdd", b"\xa1a"),
    ],
)
def test_long_lists_in_messagepack_are_refused_before_their_elements(head: bytes, element: bytes) -> None:
    """It would have to say more about its elements, which are not even there, if it looked at them."""
    with pytest.raises(InvalidField, match="length"):
        read_msgpack(head + (PACKED_ELEMENTS_MAX + 1).to_bytes(4, "big") + element, PackedBatch)


def test_only_what_a_type_can_hold_is_looked_for() -> None:
    """A list of handles has no integers and no depth."""
    acks, settles, batch = facts_of(AckRequest), facts_of(SettleRequest), facts_of(JsonBatch)
    assert (acks.has_integers, acks.has_raw, acks.is_open) == (False, False, False)
    assert (settles.has_integers, batch.has_raw, batch.is_open) == (True, True, False)
    assert facts_of(Told).has_integers
    assert facts_of(dict).is_open


NAMES = st.sampled_from(["a", "b", "a:", ":", "\\", '"', "\u00e9"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.sampled_from(["", ":", '":', "\\u003a", "9" * 30]),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=3).map(tuple),
    max_leaves=12,
)


def written(value: Any, *, is_ascii: bool) -> str:
    """JSON of *value*, in which a tuple of pairs is an object."""
    if isinstance(value, tuple):
        return (
            "{"
            + ",".join(
                f"{json.dumps(name, ensure_ascii=is_ascii)}:{written(inner, is_ascii=is_ascii)}"
                for name, inner in value
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(written(inner, is_ascii=is_ascii) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=is_ascii)


def is_allowed(value: Any) -> bool:
    """What the slow reading says, written a second time."""
    if isinstance(value, tuple):
        return len({name for name, _ in value}) == len(value) and all(is_allowed(inner) for _, inner in value)
    if isinstance(value, list):
        return all(map(is_allowed, value))
    return isinstance(value, bool) or not isinstance(value, int) or -(1 << 63) <= value < 1 << 64


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4).map(tuple), st.booleans())
def test_any_document_is_judged_as_a_second_reader_judges_it(value: Any, is_ascii: bool) -> None:
    """Names twice and long integers at any depth, escapes, colons everywhere."""
    document = written(value, is_ascii=is_ascii).encode()
    try:
        read_json(document, dict)
        taken = True
    except InvalidField:
        taken = False
    assert taken == is_allowed(value)


@pytest.mark.parametrize(
    ("text", "half"),
    [
        (rb"\ud800", rb"\ud800"),
        (rb"a\uD9ffx", rb"\uD9ff"),
        (rb"\udc00", rb"\udc00"),
        (rb"\ud800\u0041", rb"\ud800"),
        (rb"\\\ud800", rb"\ud800"),
        (rb"\ud83d\ude00\ude00", rb"\ude00"),
    ],
)
def test_half_of_a_surrogate_pair_is_called_that(text: bytes, half: bytes) -> None:
    """Not a document that breaks off, and with the escape to look for."""
    with pytest.raises(MalformedBody) as refused:
        read_json(b'{"receipt_handles": ["' + text + b'"]}', AckRequest)
    assert f"the escape {half.decode()}, half of a surrogate pair" in refused.value.detail


@pytest.mark.parametrize("text", [rb"\ud83d\ude00", rb"\\ud800", "😀".encode()])
def test_whole_pairs_and_what_only_looks_like_an_escape_are_taken(text: bytes) -> None:
    """And a document that does break off is told so, whatever stands in it."""
    document = b'{"receipt_handles": ["' + text + b'"]}'
    assert len(read_json(document, AckRequest).receipt_handles) == 1
    with pytest.raises(MalformedBody, match="truncated"):
        read_json(document[:-2], AckRequest)


def test_what_is_nested_too_deeply_is_told_the_limit() -> None:
    """Not what Python says when its stack is full."""
    for read in (lambda: read_json(b'{"a":' * 3_000, dict), lambda: read_msgpack(b"\x91" * 3_000, list)):
        with pytest.raises(DocumentTooComplex) as refused:
            read()
        assert refused.value.fields["limit"] == JSON_DEPTH_MAX
