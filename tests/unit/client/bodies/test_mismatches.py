"""Bodies that do not fit: the error names type, place and message, and no body gives any other error."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_client import BodyMismatch, CloudEvent
from tern_client.bodies.decoders import decoder_for
from tern_wire.limits import DEAD_LETTER_REASON_SIZE_MAX_BYTES
from tests.unit.client.bodies.orders import Foreign, Mixed, ModelOrder, Order, PydanticOrder, StructOrder

DEEP = b"[" * 100_000
# Type, body, the type's name in the text, the place, and what else the text says.
MISFITS: list[tuple[Any, bytes, str, str, str]] = [
    (Order, b'{"id":"x"}', "Order", "$.id", "Expected `int`, got `str`"),
    (Order, b'{"id":1,"items":[{"name":"a"},{"name":2}]}', "Order", "$.items[1].name", "Expected `str`"),
    (Order, b"{}", "Order", "", "missing required field `id`"),
    (Order, b"not json", "Order", "", "JSON is malformed"),
    (Order, b"", "Order", "", "truncated"),
    (Order, b"\xff", "Order", "", "malformed"),
    (list[Any], DEEP, "list[Any]", "", "nested too deeply"),
    (StructOrder, b'{"id":"x"}', "StructOrder", "$.id", "Invalid UUID"),
    (ModelOrder, b'{"id":"x","at":"never"}', "ModelOrder", "$.id", "valid integer, unable to parse string as an integer, and 1 more"),
    (ModelOrder, b'{"id":0}', "ModelOrder", "$.id", "greater than 0"),
    (ModelOrder, b"{", "ModelOrder", "", "Invalid JSON"),
    (ModelOrder, DEEP, "ModelOrder", "", "Invalid JSON"),
    (list[ModelOrder], b'[{"id":1},{"id":"x"}]', "list[ModelOrder]", "$[1].id", "valid integer"),
    (PydanticOrder, b"{}", "PydanticOrder", "$.id", "Field required"),
    (Mixed, b'{"model":{"id":0}}', "Mixed", "$.model.id", "greater than 0"),
    (str, b"\xff", "str", "", "not UTF-8"),
    (str, b'"half', "str", "", "truncated"),
    (int, b"x1", "int", "", "malformed"),
    (Any, b"{", "typing.Any", "", "truncated"),
]  # fmt: skip


@pytest.mark.parametrize("kind, body, name, path, reason", MISFITS, ids=str)
def test_what_does_not_fit_is_named(kind: Any, body: bytes, name: str, path: str, reason: str) -> None:
    """The type as its program calls it, the place in the body, the message's id, the reason."""
    with pytest.raises(BodyMismatch) as caught:
        decoder_for(kind)(body, "application/json", {}, "0A1B")
    error = caught.value
    assert (error.code, error.retryable) == ("body-mismatch", False)
    assert error.fields["message_id"] == "0A1B"
    assert error.fields["path"] == path
    assert error.fields["type"] == name.removeprefix("typing.")
    assert reason in error.fields["reason"]
    assert str(error).startswith(f"The body of message 0A1B is not {error.fields['type']}: ")


def test_the_text_is_bounded_whatever_the_body_holds() -> None:
    """It is the reason of a dead letter, which has a limit, and a line of a log."""

    @dataclass
    class Strict:
        pass

    Strict.__name__ = "Strict" * 100
    name = "n\r\n" * 5_000
    for kind, document in ((dict[str, dict[str, int]], {name: {name: "x"}}), (Strict, 7), (ModelOrder, {"id": name})):
        with pytest.raises(BodyMismatch) as caught:
            decoder_for(kind)(json.dumps(document).encode(), "application/json", {}, "m" * 5_000)
        text = str(caught.value)
        assert len(text) <= 700 and len(text.encode()) < DEAD_LETTER_REASON_SIZE_MAX_BYTES
        assert text.isprintable()


@pytest.mark.parametrize("kind", [Foreign, "Order", list["Nowhere"]], ids=str)  # type: ignore[name-defined]  # noqa: F821
def test_a_type_that_no_body_can_fill_is_an_error_of_the_program(kind: Any) -> None:
    """Found when the decoder is made, before any message: it would make a dead letter of each."""
    with pytest.raises(TypeError, match="the type of a body"):
        decoder_for(kind)


def test_a_foreign_type_deep_in_another_is_no_fault_of_the_body() -> None:
    """It is met with the first message, and is still no mismatch."""
    with pytest.raises(TypeError, match="Foreign cannot be the type of a body"):
        decoder_for(dict[str, Foreign])(b'{"a":{}}', "")


KINDS = [Any, str, Order, StructOrder, ModelOrder, Mixed, CloudEvent, CloudEvent[Order], list[int], dict[str, Any]]
CONTENT_TYPES = ["", "application/json", "text/plain", "application/cloudevents+json", ";", "a/b+json;c"]
PROPERTIES = st.dictionaries(
    st.sampled_from(["CE_specversion", "ce-id", "CE_source", "CE_type", "CE_time", "CE_x", "CE_data", "other"]),
    st.sampled_from(["1.0", "", "x", "2026-01-01T00:00:00Z"]),
)
EVENTISH = st.dictionaries(
    st.sampled_from(
        ["specversion", "id", "source", "type", "time", "data", "data_base64", "datacontenttype", "x", "Ä"]
    ),
    st.sampled_from(["1.0", "", "x", 1, None, [], {}, True, 1.5, "text/csv", "application/json", "eA=="]),
).map(lambda document: json.dumps(document).encode())


@given(st.sampled_from(KINDS), st.binary(max_size=40) | EVENTISH, st.sampled_from(CONTENT_TYPES), PROPERTIES)
def test_any_body_is_a_value_or_a_mismatch(
    kind: Any, body: bytes, content_type: str, properties: dict[str, str]
) -> None:
    """A worker must tell a body that is wrong from a program that is wrong."""
    try:
        decoder_for(kind)(body, content_type, properties, "m")
    except BodyMismatch as error:
        assert error.fields["message_id"] == "m"


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    """It costs a program 100 ms and more."""
    code = (
        "import sys; from dataclasses import make_dataclass; from tern_client import *;"
        "from tern_client.bodies.decoders import decoder_for; from tern_client.bodies.serializers import encode_auto;"
        "Order = make_dataclass('Order', [('id', int)]);"
        "body = encode_auto(Order(1)).body; assert decoder_for(Order)(body, '') == Order(1);"
        "assert encode_auto([Order(1)]).body == b'[{\"id\":1}]'; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "msgspec" in done.stdout.split()
    assert "pydantic" not in done.stdout.split()
