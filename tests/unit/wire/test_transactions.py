"""Ids of transactions, and the settings of producer groups, as they travel: read back as they were, and refused when they are not ours."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tern_wire.errors import IllegalGroup, InvalidField, TernError, TransactionIdInvalid
from tern_wire.limits import CHECK_URL_SIZE_MAX_BYTES
from tern_wire.link.key_rows import QUEUE_SHIFT, is_prepared, prepared_number, prepared_receipts
from tern_wire.settings.producer_settings import (
    SETTINGS,
    ProducerSettings,
    read_producer_change,
    read_producer_settings,
)
from tern_wire.transactions import (
    END_ROW,
    END_ROWS,
    NUMBER_MAX,
    TRANSACTION_ID_SIZE_MAX_CHARS,
    TransactionId,
    TransactionIds,
)

IDS = TransactionIds(b"k" * 32)
BROKER_GROUPS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True)


@given(
    group=BROKER_GROUPS,
    number=st.integers(1, NUMBER_MAX),
    producer_group_id=st.integers(0, (1 << 32) - 1),
    principal=st.integers(0, (1 << 64) - 1),
)
@example(group="a" * 31, number=NUMBER_MAX, producer_group_id=(1 << 32) - 1, principal=(1 << 64) - 1)
def test_an_id_is_read_back_as_it_was_made(group: str, number: int, producer_group_id: int, principal: int) -> None:
    """Text for URLs, of bounded length, that another proxy with the key reads."""
    transaction = TransactionId(group, number, producer_group_id, principal)
    text = IDS.make(transaction)
    assert len(text) <= TRANSACTION_ID_SIZE_MAX_CHARS
    assert text.replace("-", "").replace("_", "").isalnum()
    assert TransactionIds(b"k" * 32).read(text) == transaction


def test_an_id_of_another_cluster_or_with_any_bit_changed_is_refused() -> None:
    """Every bit of it counts."""
    text = IDS.make(TransactionId("broker-a", 5 << 20, 7))
    with pytest.raises(TransactionIdInvalid):
        TransactionIds(b"x" * 32).read(text)
    data = bytearray(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TransactionIdInvalid):
            IDS.read(urlsafe_b64encode(bytes(data)).rstrip(b"=").decode())
        data[bit // 8] ^= 1 << bit % 8


@given(st.text(max_size=120) | st.binary(max_size=90).map(lambda data: urlsafe_b64encode(data).decode()))
def test_what_is_no_id_is_refused_in_its_type(text: str) -> None:
    """Whatever somebody puts into the path."""
    with pytest.raises(TransactionIdInvalid):
        IDS.read(text)


def test_rows_lie_as_they_are_drawn() -> None:
    """The struct that proxies pack and the dtype that brokers read agree."""
    row = np.frombuffer(END_ROW.pack(1 << 40, 9, 7, 2, 3), END_ROWS)
    assert row[["number", "claim", "producer_group", "outcome", "by"]].tolist() == [(1 << 40, 9, 7, 2, 3)]


@given(st.lists(st.integers(1, NUMBER_MAX), min_size=1, max_size=20))
def test_a_receipt_of_a_key_holds_a_transactions_number(numbers: list[int]) -> None:
    """In 16 bits beside the flag, and 48."""
    queues, offsets = prepared_receipts(np.array(numbers, np.int64))
    for number, queue, offset in zip(numbers, queues.tolist(), offsets.tolist(), strict=True):
        assert (queue < 1 << 16, offset < 1 << QUEUE_SHIFT) == (True, True)
        assert is_prepared(queue)
        assert prepared_number(queue, offset) == number
    assert not any(map(is_prepared, (0, 1_023, 1 << 15, 1 << 15 | 1_023)))


def test_settings_have_defaults_and_a_change_keeps_what_it_does_not_name() -> None:
    """Also a change that names nothing."""
    before = ProducerSettings(max_checks=3, check_url="https://a.example/c?x=1", include_body=True)
    change = read_producer_change({"producer_group": "p", "timeout_ms": 500})
    assert change.packed() == {"producer_group": "p", "create": False, "timeout_ms": 500}
    after = change.applied_to(before)
    assert after.packed() == {**before.packed(), "timeout_ms": 500}
    assert read_producer_change({"producer_group": "p", "create": True}).applied_to(after) == after
    assert read_producer_settings({"producer_group": "p", "stats": {}, **after.packed()}) == after
    assert ProducerSettings().packed() == {
        "check_url": "",
        "check_secret": "",
        "timeout_ms": 3_000,
        "max_checks": 15,
        "check_after_ms": 6_000,
        "check_interval_ms": 30_000,
        "include_body": False,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("timeout_ms", 99), ("timeout_ms", 30_001), ("timeout_ms", "3s"), ("timeout_ms", True)],
        *[("max_checks", 0), ("max_checks", 101), ("check_after_ms", 99), ("check_after_ms", 3_600_001)],
        *[("check_interval_ms", 99), ("check_interval_ms", 1.5), ("include_body", 1), ("create", "yes")],
        *[("check_url", 7), ("check_url", "http://a/ b"), ("check_url", "x" * (CHECK_URL_SIZE_MAX_BYTES + 1))],
        *[
            ("check_url", "http://ä"),
            ("check_secret", "secret"),
            ("check_secret", "whsec_*"),
            ("check_secret", "whsec_"),
        ],
    ],
)
def test_a_setting_out_of_its_range_is_refused_with_a_pointer(name: str, value: Any) -> None:
    """One at a time; the pointer names it."""
    with pytest.raises(InvalidField) as caught:
        read_producer_change({"producer_group": "p", name: value})
    assert caught.value.fields["pointer"] == f"/{name}"


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, None, 5])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    """As a consumer group's."""
    with pytest.raises((IllegalGroup, InvalidField)):
        read_producer_change({"producer_group": name})


@given(
    st.dictionaries(
        st.sampled_from(["producer_group", "create", *SETTINGS]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    )
)
def test_whatever_a_change_holds_it_is_taken_or_refused_in_types(request_: dict[str, Any]) -> None:
    """What is taken says the same when it is read again."""
    try:
        change = read_producer_change(request_)
    except TernError as error:
        assert error.status == 400
    else:
        assert read_producer_change(change.packed()) == change
