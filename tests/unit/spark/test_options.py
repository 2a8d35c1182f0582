"""Options of the Spark source: what is accepted, and that a refusal names the option and says what is allowed."""

import pickle
import re
from pathlib import Path

import pytest

from tern_client.settings.contexts import change_contexts, context_of
from tern_spark import OptionError, ReadOptions, read_options
from tern_spark.options import NAMES, ROWS, Ago, At, AtTimes, Place, Shift
from tern_spark.sink.options import write_options
from tests.support.documents.spark_options import PAGE, written

GOOD = {"endpoint": "http://127.0.0.1:8080", "subscribe": "orders"}


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's user has one context."""
    file = tmp_path / "contexts.json"
    made = context_of(("http://a:1", "http://b:2"), namespace="shop", key_file="/keys/app.key")
    change_contexts(file, lambda before: before.with_context("here", made))
    monkeypatch.setenv("TERNMQ_CONTEXTS_FILE", str(file))


def test_a_context_stands_for_endpoint_namespace_key_and_authority() -> None:
    """An option that is given precedes it; an environment's key is not used with it."""
    options = read_options({"context": "here", "subscribe": "orders"})
    assert options == ReadOptions(
        endpoints=("http://a:1", "http://b:2"),
        topics=("orders",),
        namespace="shop",
        key_file="/keys/app.key",
        ca_file="",
    )
    assert read_options({"context": "here", "subscribe": "orders", "namespace": "test"}).namespace == "test"
    assert read_options({"context": "here", "view": "lag"}).endpoints == options.endpoints
    written = write_options({"context": "here", "topic": "orders"})
    assert (written.endpoints, written.namespace, written.key_file) == (options.endpoints, "shop", "/keys/app.key")
    with pytest.raises(OptionError, match="context and endpoint are given"):
        read_options({**GOOD, "context": "here"})


def test_the_two_required_options_make_a_read_of_the_whole_topic() -> None:
    """Endpoint and topic suffice: from the earliest to the latest offset, failing on lost data."""
    options = read_options(GOOD)
    assert options == ReadOptions(endpoints=("http://127.0.0.1:8080",), topics=("orders",))
    assert (options.starting, options.ending, options.fail_on_data_loss) == ("earliest", "latest", True)


# Of every option a legal value, its kind of read, and what it becomes.
LEGAL: dict[str, tuple[str, str, object]] = {
    "endpoint": ("http://a:1/, http://b:2", "batch", ("http://a:1", "http://b:2")),
    "context": ("here", "batch", ("http://a:1", "http://b:2")),
    "subscribe": ("orders, payments,orders", "batch", ("orders", "payments")),
    "subscribePattern": ("ord.*|pay", "stream", "ord.*|pay"),
    "assign": ('{"orders": ["broker-a:0", "broker-b:7"]}', "batch", {"orders": ("broker-a:0", "broker-b:7")}),
    "view": ("Lag", "batch", "lag"),
    "startingOffsets": ("Earliest", "stream", "earliest"),
    "startingTimestamp": ("2026-01-31T12:00:00Z", "batch", At(1_769_860_800_000)),
    "startingOffsetsByTimestamp": (
        '{"orders": {"broker-a:0": 5, "": "1970-01-01T00:00:01Z"}}',
        "stream",
        AtTimes({"orders": {"broker-a:0": 5, "": 1_000}}),
    ),
    "startingOffsetsByTimestampStrategy": ("LATEST", "batch", "latest"),
    "endingOffsets": ('{"orders": {"broker-a:0": -1}}', "batch", {"orders": {"broker-a:0": -1}}),
    "endingTimestamp": ("1000", "batch", At(1_000)),
    "endingOffsetsByTimestamp": ('{"orders": 7}', "batch", AtTimes({"orders": {"": 7}})),
    "group": ("billing", "stream", "billing"),
    "namespace": ("shop", "batch", "shop"),
    "filter": ("paid || sent", "stream", (("tags", "paid || sent"),)),
    "maxRowsPerPartition": ("1000", "batch", 1_000),
    "maxBytesPerPartition": ("65536", "stream", 65_536),
    "minPartitions": ("4", "batch", 4),
    "maxRowsPerTrigger": ("128000", "stream", 128_000),
    "maxBytesPerTrigger": ("1", "stream", 1),
    "minRowsPerTrigger": ("10", "stream", 10),
    "maxTriggerDelay": ("1.5s", "stream", 1_500),
    "maxDriverRows": ("0", "stream", 0),
    "admission": ("Oldest", "stream", "oldest"),
    "failOnDataLoss": ("False", "batch", False),
    "pageBytes": ("65536", "batch", 65_536),
    "prefetchPages": ("0", "batch", 0),
    "lease": ("1h", "batch", 3_600_000),
    "keyFile": ("app.key", "batch", "app.key"),
    "caFile": ("ca.crt", "stream", "ca.crt"),
    "fetchTimeoutMs": ("500", "batch", 500),
    "fetchRetries": ("0", "stream", 0),
    "fetchRetryIntervalMs": ("10", "batch", 10),
}


def given_with(name: str, value: str) -> dict[str, str]:
    """GOOD and the option *name*, which takes the place of another choice of topics, or of the endpoint."""
    if name == "context":
        return {"subscribe": GOOD["subscribe"], name: value}
    kept = GOOD if name not in {"subscribePattern", "assign"} else {"endpoint": GOOD["endpoint"]}
    return {**kept, name: value}


def test_every_option_of_the_table_has_a_case_here() -> None:
    """A new row needs a legal value, below, and an illegal one, at the end."""
    assert set(LEGAL) == set(NAMES) == {row.name for row in ROWS}
    assert set(NAMES) - {case[0] for case in ILLEGAL} == {"keyFile", "caFile"}  # names of files: any text


@pytest.mark.parametrize("name", NAMES)
def test_a_legal_value_becomes_a_typed_field(name: str) -> None:
    """Names come in lower case from Spark; the result can be pickled to tasks."""
    value, reads, typed = LEGAL[name]
    given = {key.lower(): text for key, text in given_with(name, value).items()}
    options = read_options(given, reads)
    field = next(row.field for row in ROWS if row.name == name)
    field = {"starting_at": "starting", "starting_by": "starting", "ending_at": "ending", "ending_by": "ending"}.get(
        field, field
    )
    assert getattr(options, field) == typed
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.reads != "both"])
def test_an_option_of_the_other_kind_of_read_is_refused(name: str) -> None:
    """A stream has no end, and a batch no trigger."""
    value, reads, _ = LEGAL[name]
    with pytest.raises(OptionError, match=f"{name} has no meaning for a "):
        read_options(given_with(name, value), "batch" if reads == "stream" else "stream")


def test_a_view_needs_no_topic_and_has_no_offsets() -> None:
    """All topics by default; options of the messages are refused."""
    assert read_options({"endpoint": GOOD["endpoint"], "view": "queues"}).view == "queues"
    with pytest.raises(OptionError, match="endingOffsets has no meaning for view 'queues'"):
        read_options({**GOOD, "view": "queues", "endingOffsets": "latest"})


def test_a_stream_begins_at_the_end_and_a_batch_at_the_begin() -> None:
    """The defaults of Spark's Kafka source."""
    assert (read_options(GOOD).starting, read_options(GOOD, "stream").starting) == ("earliest", "latest")


def test_the_alias_of_the_row_limit_is_taken_once() -> None:
    """maxOffsetsPerTrigger is Kafka's name for maxRowsPerTrigger."""
    assert read_options({**GOOD, "maxOffsetsPerTrigger": "5"}, "stream").rows_per_trigger_max == 5
    with pytest.raises(OptionError, match="maxRowsPerTrigger is given twice"):
        read_options({**GOOD, "maxOffsetsPerTrigger": "5", "maxRowsPerTrigger": "5"}, "stream")


@pytest.mark.parametrize(
    ("text", "place"),
    [("-100", Shift(100)), ("-10m", Ago(600_000)), ("-1.5h", Ago(5_400_000)), ("latest", "latest")],
)
def test_relative_starts(text: str, place: Place) -> None:
    """So many rows before the end, or so long ago."""
    assert read_options({**GOOD, "startingOffsets": text}).starting == place


def test_a_time_counts_before_offsets_and_the_time_for_all_before_those_by_queue() -> None:
    """As in Spark's Kafka source."""
    both = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"orders": 5}'}
    assert read_options({**GOOD, **both}).starting == AtTimes({"orders": {"": 5}})
    assert read_options({**GOOD, **both, "startingTimestamp": "7"}).starting == At(7)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("*", ()),
        ("paid", (("tags", "paid"),)),
        ("a-1 ||b", (("tags", "a-1 ||b"),)),
        ("price > 5", (("sql", "price > 5"),)),
        ("TAGS = 'paid' AND size IS NOT NULL", (("sql", "TAGS = 'paid' AND size IS NOT NULL"),)),
    ],
)
def test_a_filter_is_tags_or_sql(text: str, query: object) -> None:
    """Tags have no blanks and operators; all else is SQL92."""
    assert read_options({**GOOD, "filter": text}).selection == query


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endpoint": "http://a:1"}, "subscribe is required"),
        ({"subscribe": "orders"}, "endpoint is required"),
        ({**GOOD, "assign": '{"orders": ["broker-a:0"]}'}, "subscribe and assign are given; give exactly one"),
        ({**GOOD, "maxRowsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "a batch has one limit"),
        ({**GOOD, "maxRowsPerTrigger": "5", "minRowsPerTrigger": "6"}, "no batch would be both"),
        ({**GOOD, "startingOffsets": "group"}, "give the option group"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], says: str) -> None:
    """Each is legal alone."""
    with pytest.raises(OptionError, match=says):
        read_options(given, "stream")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("topic", "subscribe"),
        ("groupId", "group"),
        ("endpoints", "endpoint"),
        ("minPartition", "minPartitions"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known_one(name: str, nearest: str) -> None:
    """A typo must not silently mean the default."""
    with pytest.raises(OptionError, match=f"'{name}' is not an option.*did you mean '{nearest}'"):
        read_options({**GOOD, name: "1"})


def test_a_path_in_load_is_refused_with_what_to_write_instead() -> None:
    """`load("orders")` reaches the source as the option `path`."""
    with pytest.raises(OptionError, match=r"load\(\) takes no path"):
        read_options({**GOOD, "path": "orders"})


ILLEGAL = [
    ("context", "there", "There is no context 'there'; known: here"),
    ("context", "", "There is no context ' '; known: here"),
    ("endpoint", "", "endpoint is required"),
    ("endpoint", "127.0.0.1:8080", "not a proxy's URL"),
    ("endpoint", "http://a:port", "not a proxy's URL"),
    ("endpoint", "http://a:1/v1", "not a proxy's URL"),
    ("subscribe", " , ", "subscribe is required"),
    ("subscribe", "or ders", "subscribe: 'or ders' is not a legal name"),
    ("subscribePattern", "(", "not a regular expression"),
    ("subscribePattern", " ", "subscribePattern is empty"),
    ("assign", "orders", "assign is a document such as"),
    ("assign", '{"orders": []}', "no list of queues for 'orders'"),
    ("assign", '{"orders": ["0"]}', "assign: '0' is not a legal name"),
    ("view", "lags", "view is 'lags'; use messages, queues"),
    ("startingOffsets", "now", "startingOffsets is earliest, latest, group"),
    ("startingOffsets", "-0", "startingOffsets is earliest, latest, group"),
    ("startingOffsets", "-1.2.3m", "not a duration"),
    ("startingOffsets", "[1]", "startingOffsets is"),
    ("startingOffsets", '{"orders": 5}', "'orders' has no offsets by queue"),
    ("startingOffsets", '{"payments": {}}', "'payments', which is not subscribed"),
    ("startingOffsets", '{"orders": {"broker-a:0": -3}}', "-3 for broker-a:0"),
    ("startingOffsets", '{"orders": {"broker-a:0": true}}', "True for broker-a:0"),
    ("startingTimestamp", "yesterday", "startingTimestamp: 'yesterday' is not a time"),
    ("startingOffsetsByTimestamp", '{"orders": true}', "True is not a time"),
    ("startingOffsetsByTimestamp", '{"orders": {}}', "it has no time for 'orders'"),
    ("startingOffsetsByTimestamp", '{"payments": 5}', "ByTimestamp names topic 'payments'"),
    ("startingOffsetsByTimestampStrategy", "earliest", "use error or latest"),
    ("endingOffsets", "earliest", "endingOffsets is latest or a document"),
    ("endingOffsets", '{"orders": {"broker-a:0": -2}}', "-2 for broker-a:0"),
    ("endingTimestamp", "-5", "endingTimestamp: '-5' is not a time"),
    ("endingOffsetsByTimestamp", "5", "endingOffsetsByTimestamp is a document"),
    ("group", "a b", "group: 'a b' is not a legal name"),
    ("namespace", "a%b", "namespace: 'a%b' is not a legal name"),
    ("filter", "price >", "filter: 'price >' is no filter"),
    ("maxRowsPerPartition", "0", "maxRowsPerPartition is '0'; use a whole number from 1"),
    ("maxBytesPerPartition", "1", "maxBytesPerPartition is '1'; use a whole number from 65536"),
    ("minPartitions", "two", "minPartitions"),
    ("maxRowsPerTrigger", "0", "maxRowsPerTrigger"),
    ("maxBytesPerTrigger", "-1", "maxBytesPerTrigger"),
    ("minRowsPerTrigger", "many", "minRowsPerTrigger"),
    ("maxTriggerDelay", "soon", "use a duration"),
    ("maxDriverRows", "100001", "use a whole number from 0 to 100000"),
    ("admission", "fair", "use proportional, even, oldest or aligned"),
    ("pageBytes", "1024", "pageBytes"),
    ("prefetchPages", "65", "prefetchPages"),
    ("lease", "25h", "lease is '25h'; use a duration from '1s' to '24h', or 0"),
    ("lease", "long", "use a duration"),
    ("fetchTimeoutMs", "1", "fetchTimeoutMs"),
    ("fetchRetries", "-1", "fetchRetries"),
    ("fetchRetryIntervalMs", "0", "fetchRetryIntervalMs"),
    ("failOnDataLoss", "yes", "use true or false"),
]


@pytest.mark.parametrize(("option", "value", "says"), ILLEGAL)
def test_a_bad_value_is_refused_by_the_name_of_its_option(option: str, value: str, says: str) -> None:
    """Each option with values that it cannot have."""
    with pytest.raises(OptionError, match=re.escape(says)):
        read_options(given_with(option, value), LEGAL[option][1])


def test_the_page_shows_the_table_of_the_code() -> None:
    """docs/spark.md; `python -m tests.support.documents.spark_options` writes it."""
    assert PAGE.read_text("utf-8") == written()
