"""Event ids of tails: every place comes back, and nothing else is taken for one."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tern_proxy.core.tailing.event_ids import GroupPlace, read_id, topic_mark, write_id
from tern_wire.limits_tails import TAIL_ID_LENGTH_MAX, TAIL_QUEUES_MAX

OFFSETS = some.integers(0, (1 << 63) - 1)
PLACES = some.dictionaries(
    some.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True),
    some.builds(GroupPlace, some.integers(0, 1 << 40), some.lists(OFFSETS, max_size=40).map(tuple)),
    max_size=8,
)


@given(PLACES)
@settings(max_examples=100, deadline=None)
def test_places_come_back_from_their_id(places: dict[str, GroupPlace]) -> None:
    """Whatever the offsets; in characters that headers and queries need not escape."""
    text = write_id("orders", places)
    assert read_id("orders", text) == places
    assert text.replace("-", "").replace("_", "").isalnum()


@given(PLACES, some.data())
@settings(max_examples=100, deadline=None)
def test_a_damaged_id_is_refused_or_is_another_place(places: dict[str, GroupPlace], data: some.DataObject) -> None:
    """A cut, a changed character or one more never ends in another error than ValueError."""
    text = write_id("orders", places)
    at = data.draw(some.integers(0, len(text) - 1))
    changed = data.draw(some.sampled_from([text[:at], text[:at] + "A" + text[at + 1 :], text + "A", text[:at] + "=?"]))
    try:
        found = read_id("orders", changed)
    except ValueError:
        return
    assert sum(len(place.offsets) for place in found.values()) <= TAIL_QUEUES_MAX


@pytest.mark.parametrize("text", ["", "1", "2-AAAA", "1-", "1-!!!!", "1-AAA", "1-" + "A" * TAIL_ID_LENGTH_MAX, "1-é"])
def test_other_texts_are_no_ids(text: str) -> None:
    """Another version, no base64, too long, nothing at all."""
    with pytest.raises(ValueError, match="it is"):
        read_id("orders", text)


def test_an_id_belongs_to_its_topic() -> None:
    """The places of one topic mean nothing in another."""
    with pytest.raises(ValueError, match="another topic"):
        read_id("invoices", write_id("orders", {"broker-a": GroupPlace(1, (7,))}))


def test_an_id_names_a_bounded_number_of_queues_once() -> None:
    """More queues than a tail may read are refused before they are read; and so is a broker group twice."""
    head = b"\x01a\x01"
    for rest in (head + b"\xff\xff\xff\xff\x7f", head + b"\x00" + head + b"\x00", b"\x01A\x01\x00"):
        text = "1-" + base64.urlsafe_b64encode(topic_mark("orders") + rest).rstrip(b"=").decode()
        with pytest.raises(ValueError, match="damaged"):
            read_id("orders", text)


def test_the_largest_id_fits_a_header() -> None:
    """As many queues as there may be, each as far as a queue goes."""
    places = {"broker-a": GroupPlace(1 << 40, ((1 << 63) - 1,) * TAIL_QUEUES_MAX)}
    text = write_id("orders", places)
    assert len(text) <= TAIL_ID_LENGTH_MAX
    assert read_id("orders", text) == places
