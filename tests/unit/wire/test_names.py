"""Names inside and outside of namespaces: what is legal, what is whose, and that no two names become one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_wire.errors import IllegalGroup, IllegalTopic, InvalidField
from tern_wire.names import (
    GROUP_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
    check_group,
    check_namespace,
    check_topic,
    group_in,
    is_of,
    namespace_of,
    own_name,
    topic_in,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)


@given(namespace=st.one_of(st.just(""), NAMES), name=NAMES)
def test_a_name_in_a_namespace_is_legal_and_comes_apart_again(namespace: str, name: str) -> None:
    """Whole names are what brokers, name servers and RocketMQ take."""
    whole = topic_in(namespace, name)
    assert group_in(namespace, name) == check_topic(whole) == check_group(whole) == whole
    assert (namespace_of(whole), own_name(whole), is_of(namespace, whole)) == (namespace, name, True)
    assert not is_of(namespace + "x", whole)


@given(first=st.tuples(st.one_of(st.just(""), NAMES), NAMES), second=st.tuples(st.one_of(st.just(""), NAMES), NAMES))
def test_two_places_never_have_one_name(first: tuple[str, str], second: tuple[str, str]) -> None:
    """However the namespaces and the names are cut."""
    assert (topic_in(*first) == topic_in(*second)) == (first == second)


@pytest.mark.parametrize("name", ["", "%", "a%b", "%a", "a%", "a%b%c", "%RETRY%a", ".", "-a", "_a", "a b", "a\n", "ä"])
def test_what_a_client_writes_has_no_namespace_in_it(name: str) -> None:
    """Neither inside of a namespace nor outside."""
    for namespace in ("", "shop"):
        with pytest.raises(IllegalTopic):
            topic_in(namespace, name)
        with pytest.raises(IllegalGroup):
            group_in(namespace, name)


@pytest.mark.parametrize("name", ["a%b%c", "%a", "a%", "%", "a%-b", "-a%b", "%DLQ%a", "a%b\n", f"{'n' * 64}%a"])
def test_a_whole_name_has_one_namespace_at_most(name: str) -> None:
    """Internal topics, such as those of dead letters, are no names either."""
    with pytest.raises(IllegalTopic):
        check_topic(name)
    with pytest.raises(IllegalGroup):
        check_group(name)


def test_a_name_and_its_namespace_have_rocketmqs_length_together() -> None:
    """127 for a topic, 120 for a group; one more is refused with both named."""
    for put, length_max in ((topic_in, TOPIC_LENGTH_MAX), (group_in, GROUP_LENGTH_MAX)):
        assert len(put("shop", "t" * (length_max - 5))) == length_max
        with pytest.raises(InvalidField, match="'shop'"):
            put("shop", "t" * (length_max - 4))


@pytest.mark.parametrize("name", ["", "a%b", "a.b", "-a", "x" * 64, "a\n"])
def test_a_namespace_is_a_name_of_63_characters_at_most(name: str) -> None:
    """The error says where it was written."""
    assert check_namespace("x" * 63, "header/MQ-Namespace")
    with pytest.raises(InvalidField, match="header/MQ-Namespace"):
        check_namespace(name, "header/MQ-Namespace")
