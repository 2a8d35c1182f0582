"""Definitions as a document, and what a mesh lacks of them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_cli.definitions.difference import changes
from tern_cli.definitions.document import (
    Definitions,
    DefinitionsMalformed,
    GroupDefinition,
    PrincipalDefinition,
    ProducerGroupDefinition,
    RetryDefinition,
    TopicDefinition,
    read_definitions,
    span_text,
    written,
)
from tern_wire.times import parse_duration_ms

FILE = b"""
version: 1
topics:
  orders: {queues: 8, type: FIFO, attributes: {owner: shop, old: null}}
groups:
  billing: {invisible: 60s, start: 2026-01-31T12:00:00Z, fifo: true, retry: {policy: custom, delays: [1s, 500]}}
producer_groups:
  shop: {check_after: 1m}
principals:
  app:
    grants:
      - {actions: [SEND, CONSUME], kind: topic, pattern: "orders*"}
"""


def found_in(text: bytes) -> Definitions:
    """The definitions of a file."""
    return read_definitions(text, "mesh.yaml")


def test_durations_and_times_become_milliseconds() -> None:
    """So that both sides of a comparison have one form."""
    found = found_in(FILE)
    billing = found.groups["billing"]
    assert (billing.invisible, billing.start) == (60_000, 1_769_860_800_000)
    assert billing.retry == RetryDefinition(policy="custom", delays=[1_000, 500])
    assert found.producer_groups["shop"].check_after == 60_000


def test_what_is_written_is_read_again() -> None:
    """With durations as texts, and nothing that a file left out."""
    found = found_in(FILE)
    text = written(found)
    assert found_in(text) == found
    assert b"invisible: 1m" in text
    assert b"2026-01-31T12:00:00.000Z" in text
    assert text.startswith(b"version: 1\n")
    assert (
        found_in(json.dumps({"version": 1, "topics": {"orders": {"queues": 4}}}).encode()).topics["orders"].queues == 4
    )


@given(st.integers(0, 10**12))
def test_a_duration_as_text_is_exact(span_ms: int) -> None:
    """Whatever unit it gets."""
    assert parse_duration_ms(span_text(span_ms)) == span_ms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"version: 2", "its version is 2; this release reads 1"),
        (b"topics: {}", "missing required field `version`"),
        (b"version: 1\ntopic: {}", "unknown field `topic`"),
        (b"version: 1\ntopics: {orders: {queue: 8}}", "unknown field `queue` - at `$.topics"),
        (b"version: 1\ntopics: {orders: {queues: eight}}", "Expected `int`, got `str` - at `$.topics"),
        (b"version: 1\ngroups: {g: {invisible: soon}}", "groups.g: invisible: 'soon' is not a duration"),
        (b"version: 1\ngroups: {g: {start: never}}", "groups.g: start: 'never' is not a time"),
        (b"version: 1\ngroups: {g: {retry: {policy: custom, delays: [1w]}}}", "delays: '1w' is not a duration"),
        (b"version: 1\ntopics: [", "did not find"),
        (b"version: 1\ntopics: {a: {}, b: {}, a: {queues: 8}}", "the key 'a' is there twice"),
        (b"", "Expected `object`, got `null`"),
        (b"\xff\xfe\xfd", "mesh.yaml: "),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(text: bytes, says: str) -> None:
    """In one sentence that names the file."""
    with pytest.raises(DefinitionsMalformed) as caught:
        found_in(text)
    assert says in caught.value.detail
    assert "\n" not in caught.value.detail


IN_MESH = Definitions(
    version=1,
    topics={
        "orders": TopicDefinition(
            queues=4, type="FIFO", permission="rw", when_full="refuse", attributes={"old": "1", "other": "2"}
        )
    },
    groups={
        "billing": GroupDefinition(
            invisible=60_000,
            start=1_769_860_800_000,
            fifo=True,
            consume=True,
            broadcast=False,
            max_attempts=16,
            retry=RetryDefinition(policy="table"),
            attributes={},
        ),
        "unnamed": GroupDefinition(),
    },
    producer_groups={"shop": ProducerGroupDefinition(check_after=60_000, max_checks=15)},
    principals={},
)


def test_only_what_differs_is_changed() -> None:
    """By field, attributes one by one; what the file does not name stays."""
    topic, group, principal = changes(found_in(FILE), IN_MESH)
    assert (topic.name, topic.is_new, topic.settings) == (
        "orders",
        False,
        {"queues": 8, "attributes": {"owner": "shop", "old": None}},
    )
    assert list(topic.lines()) == [
        "~ topic orders",
        "    queues: 4 -> 8",
        '    attributes.owner: (none) -> "shop"',
        '    attributes.old: "1" -> (none)',
    ]
    assert group.settings == {"retry": {"policy": "custom", "delays": [1_000, 500]}}
    assert (principal.name, principal.is_new) == ("app", True)
    assert next(principal.lines()) == "+ principal app"


def test_a_mesh_that_agrees_needs_no_change() -> None:
    """Also when grants and their actions come in another order."""
    found = found_in(FILE)
    grants: Any = found.principals["app"].grants
    other = msgspec.structs.replace(grants[0], actions=["CONSUME", "SEND"])
    mesh = msgspec.structs.replace(
        found,
        topics={"orders": TopicDefinition(queues=8, type="FIFO", attributes={"owner": "shop"})},
        principals={"app": PrincipalDefinition(grants=[other])},
    )
    assert changes(found, mesh) == []
    assert changes(Definitions(version=1), mesh) == []
