"""Options and columns of a write: what is accepted, and that the driver refuses the rest with one sentence."""

import pickle

import pytest

from tern_spark import OptionError
from tern_spark.sink.columns import ColumnError, check_written
from tern_spark.sink.options import WRITE_NAMES, WriteOptions, write_options
from tern_wire.errors import TernError

GOOD = {"endpoint": "http://127.0.0.1:8080", "topic": "orders"}


def test_the_required_options_make_a_write_with_defaults() -> None:
    """The endpoint; the topic may be a column, and every batch is visible once."""
    assert write_options(GOOD) == WriteOptions(endpoints=("http://127.0.0.1:8080",), topic="orders")
    assert write_options({"endpoint": GOOD["endpoint"]}).topic == ""
    assert write_options(GOOD).is_exactly_once
    later = write_options({**GOOD, "acceptLostHistory": "true", "stageLife": "10m"})
    assert (later.accepts_lost_history, later.stage_life_ms) == (True, 600_000)


def test_names_are_taken_in_any_case_and_spark_s_own_are_passed_over() -> None:
    """Each known name works in lower case; a checkpoint's place is Spark's."""
    given = {
        "endpoint": "http://a:1/, http://b:2",
        "delivery": "AT_LEAST_ONCE",
        "topic": " orders ",
        "namespace": "shop",
        "idempotent": "False",
        "keyfile": "app.key",
        "cafile": "ca.crt",
        "requestsinflight": "4",
        "requesttimeoutms": "500",
        "sendtimeoutms": "1000",
    }
    assert set(given) == {name.lower() for name in WRITE_NAMES} - {"acceptlosthistory", "stagelife", "context"}
    options = write_options({**given, "checkpointLocation": "/c", "queryname": "q"})
    assert options == WriteOptions(
        endpoints=("http://a:1", "http://b:2"),
        topic="orders",
        namespace="shop",
        is_exactly_once=False,
        is_idempotent=False,
        key_file="app.key",
        ca_file="ca.crt",
        requests_in_flight=4,
        request_timeout_ms=500,
        send_timeout_ms=1_000,
    )
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topics": "a"}, "'topics' is not an option of a write.*did you mean 'topic'"),
        ({"path": "orders"}, "take no path here: name the topic with"),
        ({"endpoint": ""}, "endpoint is required"),
        ({"endpoint": "127.0.0.1:8080"}, "endpoint: .*does not begin with http"),
        ({"delivery": ""}, "delivery is ''; use exactly_once or at_least_once"),
        ({"delivery": "twice"}, "delivery is 'twice'; use exactly_once or at_least_once"),
        ({"delivery": "at_least_once", "idempotent": "yes"}, "idempotent is 'yes'; use true or false"),
        ({"idempotent": "false"}, "idempotent belongs to delivery=at_least_once; this write has delivery=exactly_once"),
        ({"delivery": "at_least_once", "stageLife": "1h"}, "stageLife belongs to delivery=exactly_once"),
        ({"stageLife": "9m"}, "stageLife is '9m'; use a duration from '10m' to '1d'"),
        ({"stageLife": "soon"}, "stageLife is 'soon'; use a duration"),
        ({"acceptLostHistory": "1"}, "acceptLostHistory is '1'; use true or false"),
        ({"requestsInFlight": "0"}, "requestsInFlight is '0'; use a whole number from 1 to 16"),
        ({"requestTimeoutMs": "1s"}, "requestTimeoutMs is '1s'; use a whole number from 100"),
        ({"sendTimeoutMs": "99"}, "sendTimeoutMs is '99'; use a whole number from 100"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(given: dict[str, str], says: str) -> None:
    """Before any task starts."""
    with pytest.raises(OptionError, match=says):
        write_options({**GOOD, **given})


@pytest.mark.parametrize(
    ("option", "says"), [("topic", "'a b' is not a topic name"), ("namespace", "A namespace is 1 to")]
)
def test_names_of_topics_and_namespaces_are_checked(option: str, says: str) -> None:
    """By the mesh's own rule."""
    with pytest.raises(TernError, match=says):
        write_options({**GOOD, option: "a b"})


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"body": "binary", "tag": "string"}, "t", "column 'tag' cannot be written; the nearest name is 'tags'"),
        ({"body": "int"}, "t", "column 'body' is int; write it as binary or string"),
        ({"value": "string", "body": "binary"}, "t", "columns 'value' and 'body' are the same"),
        ({"key": "string"}, "t", "a write needs the column 'body'"),
        ({"body": "string"}, "", "a write needs a topic"),
        ({"body": "string", "properties": "map<string,int>"}, "t", "write it as map<string,string>"),
        ({"body": "string", "deliver_at": "date"}, "t", "write it as timestamp or bigint"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, str], topic: str, says: str) -> None:
    """Unknown name, wrong type, the same column twice, and what is missing."""
    with pytest.raises(ColumnError, match=says):
        check_written(columns.items(), topic)


def test_the_columns_of_the_source_that_a_message_carries_can_be_written() -> None:
    """A copy of a topic needs no renaming."""
    check_written(
        {"body": "binary", "keys": "string", "tags": "string", "properties": "map<string,string>"}.items(), "t"
    )
    check_written({"value": "string", "deliver_at": "timestamp", "topic": "string"}.items(), "")
