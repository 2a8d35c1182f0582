"""What a transaction cannot carry is no argument of its message."""

from dataclasses import replace
from typing import Any

import pytest

from tern_client import HalfMessage


@pytest.mark.parametrize(
    "argument",
    [{"message_group": "g"}, {"delay": "1h"}, {"deliver_at": 1}, {"delay_level": 1}],
    ids=lambda each: next(iter(each)),
)
def test_a_half_message_has_no_order_and_no_delay(argument: dict[str, Any]) -> None:
    """The type says so where the message is written, before the server refuses it."""
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        HalfMessage(topic="orders", body=b"paid", **argument)


def test_a_half_message_gets_its_key_as_any_other() -> None:
    """A copy with another field keeps the rest, and sends no field of order or delay."""
    message = replace(HalfMessage(topic="orders", body=b"paid", tag="a"), idempotency_key="k")
    assert (message.topic, message.tag, message.idempotency_key, message.timing()) == ("orders", "a", "k", {})
