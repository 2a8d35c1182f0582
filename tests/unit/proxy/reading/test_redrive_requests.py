"""What a redrive asks for: which dead letters its body chooses, and that `origin` is a target and no time."""

from typing import Any

import msgspec
import pytest

from tern_proxy.core.dead_letters import redrive_selections
from tern_proxy.core.documents.dead_letters import RedriveRequest
from tern_proxy.core.sending.parameters import time_of
from tern_wire.dead_letters import Selection
from tern_wire.errors import InvalidField


def chosen(body: dict[str, Any]) -> dict[str, tuple[Selection, int]]:
    """What *body* means to two broker groups."""
    return redrive_selections(msgspec.convert(body, RedriveRequest), ["broker-a", "broker-b"], time_of)


@pytest.mark.parametrize(
    ("body", "selection"),
    [
        ({"to": "origin"}, Selection()),
        ({"to": "origin", "all": True}, Selection()),
        ({"to": "origin", "topic": "orders"}, Selection(topic="orders")),
        ({"to": "origin", "tag": "A", "from": 5}, Selection(tag="A", from_ms=5)),
        ({"to": 9}, Selection(to_ms=9)),
        ({"all": True}, Selection()),
    ],
)
def test_origin_is_the_default_target_and_no_time(body: dict[str, Any], selection: Selection) -> None:
    """By itself it means all; beside a condition it changes nothing."""
    assert chosen(body) == {"broker-a": (selection, 0), "broker-b": (selection, 0)}


def test_offsets_go_to_origin_too() -> None:
    """Offsets are refused beside anything that chooses; a target chooses nothing."""
    asked = {"offsets": ["broker-b:7"], "to": "origin"}
    assert chosen(asked) == {"broker-b": (Selection(offsets=(7,)), 0)}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/"),
        ({"to": "origin", "topic": ""}, "/"),
        ({"to": "origin", "reason": "", "tag": ""}, "/"),
        ({"to": "origin", "all": False}, "/"),
        ({"to": "origin", "offsets": []}, "/offsets"),
        ({"to": "Origin"}, "/to"),
        ({"from": "origin"}, "/from"),
    ],
)
def test_what_chooses_nothing_is_refused(body: dict[str, Any], pointer: str) -> None:
    """A script's empty variable beside `origin` is no `all`."""
    with pytest.raises(InvalidField) as refused:
        chosen(body)
    assert refused.value.problem()["pointer"] == pointer
