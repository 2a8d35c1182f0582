"""Values through a serializer and back: each kind of type gives an equal value, and the JSON that the standard library reads."""

import json
import math
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_client import EncodedBody
from tern_client.bodies.decoders import decoder_for
from tern_client.bodies.serializers import encode_auto, encoder_of
from tests.unit.client.bodies.orders import (
    AT,
    Foreign,
    Item,
    Mixed,
    ModelOrder,
    Order,
    PydanticOrder,
    RowOrder,
    State,
    StructOrder,
)

ID = UUID("12345678-1234-5678-1234-567812345678")
# What is sent, the type that its receiver asks for, and the content type.
ROUND_TRIPS: list[tuple[Any, Any, str]] = [
    (b"\x00\xff", bytes, ""),
    ("Grüße", str, "text/plain"),
    ({"a": [1, 2.5, None, True], "b": {"c": "d"}}, dict[str, Any], "application/json"),
    ([1, 2], list[int], "application/json"),
    ((1, "x"), tuple[int, str], "application/json"),
    ({3: "three"}, dict[int, str], "application/json"),
    ({"tags": {"b", "a"}}, dict[str, set[str]], "application/json"),
    ({"every": timedelta(minutes=5)}, dict[str, timedelta], "application/json"),
    ([2**70, -(2**70)], list[int], "application/json"),
    (Order(1, [Item("tea", 2)], AT), Order, "application/json"),
    (Order(1), Order | None, "application/json"),
    (StructOrder(ID, Decimal("9.50"), State.PAID, b"\x00"), StructOrder, "application/json"),
    (ModelOrder(id=7, at=AT), ModelOrder, "application/json"),
    ([ModelOrder(id=7), ModelOrder(id=8)], list[ModelOrder], "application/json"),
    ({"first": ModelOrder(id=7)}, dict[str, ModelOrder], "application/json"),
    (PydanticOrder(5), PydanticOrder, "application/json"),
    (Mixed(ModelOrder(id=7, at=AT)), Mixed, "application/json"),
    ({"id": 4}, RowOrder, "application/json"),
]


@pytest.mark.parametrize(
    "value, kind, content_type", ROUND_TRIPS, ids=[f"{at}-{kind}" for at, (_, kind, _) in enumerate(ROUND_TRIPS)]
)
def test_a_value_comes_back_equal(value: Any, kind: Any, content_type: str) -> None:
    """And its JSON is what any reader of JSON takes."""
    encoded = encode_auto(value)
    assert encoded.content_type == content_type
    assert decoder_for(kind)(encoded.body, encoded.content_type) == value
    if content_type == "application/json":
        json.loads(encoded.body)


@pytest.mark.parametrize("value", ["text", "", 17, 2.5, True, None, [1], {"a": None}])
def test_the_serializer_json_takes_whatever_json_can_say(value: Any) -> None:
    """Also texts, which come back as the text that they say, not with their quotes."""
    encoded = encoder_of("json")(value)
    assert encoded == EncodedBody(json.dumps(value, separators=(",", ":")).encode(), "application/json")
    assert decoder_for()(encoded.body, encoded.content_type) == value
    if isinstance(value, str):
        assert decoder_for(str)(encoded.body, encoded.content_type) == value


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_every_value_of_json_comes_back_and_the_standard_library_agrees(value: Any) -> None:
    """In both directions: what we write it reads, and what it writes we read."""
    body = encoder_of("json")(value).body
    assert decoder_for()(body, "application/json") == value
    assert json.loads(body) == value
    assert decoder_for()(json.dumps(value).encode(), "application/json; charset=utf-8") == value


def test_nan_and_infinity_become_null() -> None:
    """JSON has neither, and half a document of ours would be none."""
    assert encode_auto([math.nan, math.inf]).body == b"[null,null]"


@pytest.mark.parametrize(
    "body, content_type, value",
    [
        (b'{"id":1}', "application/json", {"id": 1}),
        (b'{"id":1}', "Application/Vnd.Shop+JSON; v=1", {"id": 1}),
        (b"caf\xc3\xa9", "text/csv; charset=utf-8", "café"),
        (b'{"id":1}', "", b'{"id":1}'),
        (b"\xff", "image/png", b"\xff"),
    ],
)
def test_without_a_type_the_content_type_decides(body: bytes, content_type: str, value: object) -> None:
    """JSON and text are read; what is neither stays bytes."""
    for kind in (Any, object):
        assert decoder_for(kind)(body, content_type) == value


def test_bytes_and_text_are_there_for_every_body() -> None:
    """A handler that wants the body as it came gets it, whatever it is."""
    assert decoder_for(bytes)(b'{"id":1}', "application/json") == b'{"id":1}'
    assert decoder_for(str)(b'{"id":1}', "application/json") == '{"id":1}'


def test_bytes_like_bodies_are_copied() -> None:
    """A buffer that its owner changes later must not change what is sent."""
    buffer = bytearray(b"one")
    encoded = encode_auto(buffer)
    buffer[:] = b"two"
    assert encoded.body == b"one"
    assert encode_auto(memoryview(b"xy")[1:]).body == b"y"


@pytest.mark.parametrize(
    "body, text",
    [
        (17, "body is an int; allowed are bytes, str, dict"),
        (None, "body is None; allowed are"),
        (Order, "body is the class Order; allowed are"),
        (Foreign(), "body is a Foreign; allowed are"),
        ({"a": Foreign()}, "body is a dict that cannot be written as JSON: it contains a Foreign"),
        ([object()], "body is a list that cannot be written as JSON: it contains an object"),
    ],
)
def test_a_body_of_a_wrong_type_is_named(body: object, text: str) -> None:
    """What came, and what is allowed."""
    with pytest.raises(TypeError, match=text):
        encode_auto(body)


def test_a_body_that_json_cannot_hold_is_a_value_error_that_names_it() -> None:
    """Its type is allowed, its content is not."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="body is nested too deeply for JSON, or contains itself"):
        encode_auto(endless)
    with pytest.raises(ValueError, match="body cannot be written as UTF-8"):
        encode_auto("\ud800")
    with pytest.raises(ValueError, match="body cannot be written as JSON"):
        encode_auto({"name": "\ud800"})


def test_serializers_refuse_what_is_not_theirs() -> None:
    """By name, when the producer is made; by type, when something is sent."""
    with pytest.raises(TypeError, match="serializer is 'jsn'; allowed are 'auto', 'json', 'cloudevents', 'bytes'"):
        encoder_of("jsn")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="serializer is 7; allowed"):
        encoder_of(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="body is a dict; serializer='bytes' takes bytes"):
        encoder_of("bytes")({})
    with pytest.raises(TypeError, match="body is a dict; serializer='cloudevents' takes a CloudEvent"):
        encoder_of("cloudevents")({})
