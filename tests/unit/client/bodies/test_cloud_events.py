"""CloudEvents in both modes, compared with the SDK of the CloudEvents project."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as OtherEvent

from tern_client import BodyMismatch, CloudEvent
from tern_client.bodies.decoders import decoder_for
from tern_client.bodies.serializers import encode_auto, encoder_of
from tern_wire.errors import InvalidField
from tests.unit.client.bodies.orders import AT, Order

STRUCTURED = "application/cloudevents+json"
FIELDS: dict[str, Any] = {"type": "order.paid", "source": "/shop/1", "id": "A-1"}
# The other SDK gives an event without a time that of the moment.
TIMED = {**FIELDS, "time": AT}
EVENTS: list[CloudEvent[Any]] = [
    CloudEvent(**TIMED, data={"id": 1, "items": []}, datacontenttype="application/json"),
    CloudEvent(**TIMED, data="Grüße", datacontenttype="text/plain"),
    CloudEvent(**TIMED, data=b"\x00\xff", datacontenttype="image/png"),
    CloudEvent(**TIMED),
    CloudEvent(
        **TIMED,
        data=[1, 2],
        datacontenttype="application/vnd.shop+json",
        subject="order 7, ü",
        dataschema="https://shop/schema",
        extensions={"partitionkey": "c 4", "traceparent": "00-ab"},
    ),
]


def other_of(event: CloudEvent[Any]) -> OtherEvent:
    """The same event in the other SDK."""
    names = ("id", "source", "type", "subject", "time", "dataschema", "datacontenttype")
    attributes = {name: getattr(event, name) for name in names if getattr(event, name)}
    return OtherEvent({**attributes, "specversion": "1.0", **event.extensions}, event.data)


def in_structured_mode(event: CloudEvent[Any]) -> bytes:
    """The one document of *event*."""
    encoded = encoder_of("cloudevents")(event)
    assert (encoded.content_type, encoded.properties) == (STRUCTURED, {})
    return encoded.body


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.datacontenttype)
def test_binary_mode_is_that_of_other_bindings(event: CloudEvent[Any]) -> None:
    """Kafka's headers, but for the letters' case and for the content type, which is the message's own."""
    encoded = encode_auto(event)
    message = kafka.to_binary(other_of(event), JSONFormat(), key_mapper=lambda _: None)
    headers = {name: value.decode() for name, value in message.headers.items()}
    assert encoded.content_type == headers.pop("content-type", "")
    assert {name.lower(): value for name, value in encoded.properties.items()} == headers
    if isinstance(event.data, dict | list):
        assert json.loads(encoded.body) == json.loads(message.value)
    else:
        assert encoded.body == message.value
    decoded = decoder_for(CloudEvent)(encoded.body, encoded.content_type, encoded.properties)
    assert decoded == decoder_for()(encoded.body, encoded.content_type, encoded.properties) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.datacontenttype)
def test_structured_mode_is_read_by_the_other_sdk_and_its_documents_here(event: CloudEvent[Any]) -> None:
    """One document each; nothing is lost in either direction."""
    body = in_structured_mode(event)
    found: Any = JSONFormat().read(None, body)
    assert found.get_attributes() == other_of(event).get_attributes()
    assert found.get_data() == event.data
    written = JSONFormat().write(other_of(event))
    for document in (body, written):
        assert decoder_for(CloudEvent)(document, STRUCTURED) == decoder_for()(document, STRUCTURED) == event


@pytest.mark.parametrize("prefix", ["CE_", "ce_", "ce-", "Ce-"])
def test_properties_of_all_bindings_are_read(prefix: str) -> None:
    """A gateway may pass on headers of HTTP or Kafka as they came."""
    properties = {f"{prefix}{name}": value for name, value in {**FIELDS, "specversion": "1.0", "shop": "7"}.items()}
    event = decoder_for(CloudEvent[Order])(b'{"id":3}', "application/json", {**properties, "mine": "x"}, "m")
    assert (event.data, event.type, event.extensions) == (Order(3), "order.paid", {"shop": "7"})


def test_data_has_the_type_that_is_asked_for_in_both_modes() -> None:
    """`CloudEvent[Order]` keeps the envelope, `Order` is the data alone."""
    event = CloudEvent(**FIELDS, data=Order(5))
    binary, structured = encode_auto(event), encoder_of("cloudevents")(event)
    for encoded in (binary, structured):
        parts = (encoded.body, encoded.content_type, encoded.properties)
        assert decoder_for(CloudEvent[Order])(*parts).data == Order(5)
        assert decoder_for(Order)(*parts) == Order(5)
    assert decoder_for(str)(structured.body, STRUCTURED) == structured.body.decode()


def test_a_text_says_what_it_is() -> None:
    """Plain text unless its content type says JSON; an event of a text is a text again."""
    plain, quoted = CloudEvent(**FIELDS, data="a"), CloudEvent(**FIELDS, data="a", datacontenttype="application/json")
    assert (encode_auto(plain).body, encode_auto(plain).content_type) == (b"a", "text/plain")
    assert (encode_auto(quoted).body, encode_auto(quoted).content_type) == (b'"a"', "application/json")
    for event in (plain, quoted):
        assert json.loads(in_structured_mode(event))["data"] == "a"
        assert decoder_for(CloudEvent[str])(in_structured_mode(event), STRUCTURED).data == "a"


def test_values_of_attributes_are_texts_in_binary_mode_and_json_in_the_other() -> None:
    """As the specification writes booleans and integers; a time is in UTC."""
    zone = timezone(timedelta(hours=2))
    event = CloudEvent(**FIELDS, time=datetime(2026, 1, 1, 2, tzinfo=zone), extensions={"flag": True, "count": 3})
    properties = encode_auto(event).properties
    assert (properties["CE_flag"], properties["CE_count"]) == ("true", "3")
    assert properties["CE_time"] == "2026-01-01T00:00:00Z"
    document = json.loads(in_structured_mode(event))
    assert (document["flag"], document["count"], document["time"]) == (True, 3, "2026-01-01T00:00:00Z")


def test_an_event_gets_an_id_of_its_own() -> None:
    """Random, as two events of one source must differ in it."""
    events: list[CloudEvent[Any]] = [CloudEvent(type="t", source="/s") for _ in range(2)]
    assert events[0].id and events[0].id != events[1].id


@pytest.mark.parametrize(
    "fields, pointer",
    [
        ({"type": ""}, "/type"),
        ({"source": None}, "/source"),
        ({"id": 7}, "/id"),
        ({"time": "now"}, "/time"),
        ({"extensions": {"Big": "x"}}, "/Big"),
        ({"extensions": {"data": "x"}}, "/data"),
        ({"extensions": {"x": 1.5}}, "/x"),
    ],
    ids=str,
)
def test_an_event_that_no_reader_would_take_cannot_be_made(fields: dict[str, Any], pointer: str) -> None:
    """The error says which attribute."""
    with pytest.raises(InvalidField) as caught:
        CloudEvent(**{**FIELDS, **fields})
    assert caught.value.fields["pointer"] == pointer


def test_data_that_contradicts_its_content_type_is_a_type_error() -> None:
    """A dict has no form as an image."""
    with pytest.raises(TypeError, match="data is a dict, and datacontenttype is 'image/png'"):
        encode_auto(CloudEvent(**FIELDS, data={}, datacontenttype="image/png"))


@pytest.mark.parametrize(
    "document, path",
    [
        ({}, "$.specversion"),
        ({"specversion": "0.3"}, "$.specversion"),
        ({"specversion": "1.0", "id": 1}, "$.id"),
        ({**FIELDS, "specversion": "1.0", "time": "never"}, "$.time"),
        ({**FIELDS, "specversion": "1.0", "x": []}, "$.x"),
        ({**FIELDS, "specversion": "1.0", "data": {"id": "x"}}, "$.id"),
        ({**FIELDS, "specversion": "1.0", "data_base64": "*"}, ""),
        ({**FIELDS, "specversion": "1.0", "datacontenttype": 5, "data": 1}, ""),
    ],
    ids=str,
)
def test_a_document_that_is_no_event_is_a_mismatch(document: dict[str, Any], path: str) -> None:
    """With its place."""
    with pytest.raises(BodyMismatch) as caught:
        decoder_for(CloudEvent[Order])(json.dumps(document).encode(), STRUCTURED, {}, "m")
    assert (caught.value.fields["path"], caught.value.fields["type"]) == (path, "CloudEvent[Order]")


def test_a_message_that_is_no_event_is_a_mismatch() -> None:
    """The reason says by what an event is known."""
    with pytest.raises(BodyMismatch, match=r"is not CloudEvent: its content type is not .* no property is CE_specv"):
        decoder_for(CloudEvent)(b"{}", "application/json", {"CE_type": "t"}, "m")


def test_an_attribute_that_is_null_is_one_that_is_not_there() -> None:
    """As the JSON format says; null data is the value null."""
    document = {**FIELDS, "specversion": "1.0", "subject": None, "time": None, "shop": None, "data": None}
    event = decoder_for(CloudEvent)(json.dumps(document).encode(), STRUCTURED)
    assert event == CloudEvent(**FIELDS, datacontenttype="application/json")
