"""Options of the Spark source: what is accepted, and that a refusal names the option and says what is allowed."""

import pickle

import pytest

from tern_spark import OptionError, ReadOptions, read_options
from tern_spark.options import NAMES

GOOD = {"endpoint": "http://127.0.0.1:8080", "subscribe": "orders"}


def test_the_two_required_options_make_a_read_of_the_whole_topic() -> None:
    """Endpoint and topic suffice: from the earliest to the latest offset, failing on lost data."""
    options = read_options(GOOD)
    assert options == ReadOptions(endpoints=("http://127.0.0.1:8080",), topics=("orders",))
    assert (options.starting, options.ending, options.fail_on_data_loss) == ("earliest", "latest", True)


def test_names_are_taken_in_any_case_as_spark_hands_them_over() -> None:
    """Spark lowers the names of options: each known name works in lower case, and the result can be pickled to tasks."""
    given = {
        "endpoint": "http://a:1/, http://b:2",
        "subscribe": "orders, payments,orders",
        "startingoffsets": '{"orders": {"broker-a:0": -2}, "payments": {}}',
        "endingoffsets": "LATEST",
        "maxrowsperpartition": "1000",
        "minpartitions": "4",
        "pagebytes": "65536",
        "failondataloss": "False",
        "fetchtimeoutms": "500",
        "fetchretries": "0",
        "fetchretryintervalms": "10",
        "keyfile": "app.key",
        "cafile": "ca.crt",
    }
    assert set(given) == {name.lower() for name in NAMES}
    options = read_options(given)
    assert options.endpoints == ("http://a:1", "http://b:2")
    assert options.topics == ("orders", "payments")
    assert options.starting == {"orders": {"broker-a:0": -2}, "payments": {}}
    assert (options.ending, options.fail_on_data_loss, options.fetch_retries) == ("latest", False, 0)
    assert (options.key_file, options.ca_file) == ("app.key", "ca.crt")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("topic", "endpoint"),
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


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("endpoint", "", "endpoint is required"),
        ("endpoint", "127.0.0.1:8080", "not a proxy's URL"),
        ("endpoint", "http://a:port", "not a proxy's URL"),
        ("endpoint", "http://a:1/v1", "not a proxy's URL"),
        ("subscribe", " , ", "subscribe is required"),
        ("startingOffsets", "now", "startingOffsets is earliest, latest or a document"),
        ("startingOffsets", "[1]", "startingOffsets is"),
        ("startingOffsets", '{"payments": {}}', "'payments', which is not subscribed"),
        ("startingOffsets", '{"orders": {"broker-a:0": -3}}', "-3 for broker-a:0"),
        ("startingOffsets", '{"orders": {"broker-a:0": true}}', "True for broker-a:0"),
        ("endingOffsets", "earliest", "endingOffsets is latest or a document"),
        ("endingOffsets", '{"orders": {"broker-a:0": -2}}', "-2 for broker-a:0"),
        ("maxRowsPerPartition", "0", "maxRowsPerPartition is '0'; use a whole number from 1"),
        ("minPartitions", "two", "minPartitions"),
        ("pageBytes", "1024", "pageBytes"),
        ("fetchRetries", "-1", "fetchRetries"),
        ("failOnDataLoss", "yes", "use true or false"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(option: str, value: str, says: str) -> None:
    """Each option with a value that it cannot have."""
    with pytest.raises(OptionError, match=says):
        read_options({**GOOD, option: value})
