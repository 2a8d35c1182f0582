"""Names of request-reply: which ids and addresses are legal, and that they are at home wherever they are put."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_wire.errors import IllegalCorrelationId, IllegalReplyAddress, InvalidField
from tern_wire.names import check_topic
from tern_wire.replies import ReplyAddress, check_client, check_correlation_id, read_reply_address, reply_topic_of

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@#+=~-]{0,63}", fullmatch=True)


@given(IDS)
def test_a_correlation_id_is_one_key_one_tag_and_one_piece_of_a_path(text: str) -> None:
    """No separator of any of them is in it; quoted it survives a path."""
    assert check_correlation_id(text, "x") == check_client(text, "x") == text
    assert text.split() == [text]
    assert not set(text) & set("|/\x01\x02")
    assert unquote(quote(text, safe="")) == text
    assert text not in {".", ".."}


@given(IDS, st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True))
def test_an_address_is_read_as_it_was_written(client: str, broker_group: str) -> None:
    """Whatever signs the client id has; at most 128 characters."""
    text = str(ReplyAddress(broker_group, client))
    assert read_reply_address(text, "x") == ReplyAddress(broker_group, client)
    assert len(text) <= 128


@pytest.mark.parametrize("text", ["", " ", "a b", "-a", ".", "a|b", "a/b", "a\n", "ä", "a" * 65, "a\x01"])
def test_other_ids_are_refused(text: str) -> None:
    """With the place of the mistake."""
    with pytest.raises(IllegalCorrelationId):
        check_correlation_id(text, "query/correlation_id")
    with pytest.raises(InvalidField):
        check_client(text, "query/client")
    with pytest.raises(IllegalReplyAddress):
        read_reply_address(f"broker-a:{text}", "query/reply_to")


@pytest.mark.parametrize("text", ["", ":", "shop", "Broker:shop", "broker a:shop", f"{'a' * 32}:shop", "%:x"])
def test_other_addresses_are_refused(text: str) -> None:
    """Nothing is stored under an address that no request had."""
    with pytest.raises(IllegalReplyAddress):
        read_reply_address(text, "query/reply_to")


@given(st.text(max_size=200))
def test_every_cluster_has_a_reply_topic_that_may_be_created(cluster: str) -> None:
    """Whatever its name is; RocketMQ's ending."""
    assert check_topic(reply_topic_of(cluster)).endswith("_REPLY_TOPIC")


def test_the_reply_topic_is_named_as_rocketmq_does() -> None:
    """{cluster}_REPLY_TOPIC."""
    assert reply_topic_of("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"
