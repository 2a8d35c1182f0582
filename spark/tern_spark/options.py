"""The options of `spark.read.format("ternmq")`: names, defaults and ranges.

Names follow Spark's Kafka source.

| option               | default  | meaning                                                        |
|----------------------|----------|----------------------------------------------------------------|
| endpoint             | required | proxy URLs, comma separated; tasks spread over them, fail over |
| subscribe            | required | topics, comma separated                                        |
| startingOffsets      | earliest | earliest, latest, or {"topic": {"broker-a:0": offset}};        |
|                      |          | -2 earliest, -1 latest                                         |
| endingOffsets        | latest   | latest, or a document as above; -1 latest                      |
| maxRowsPerPartition  | none     | ranges with more rows are split                                |
| minPartitions        | none     | ranges are split until there are so many                       |
| pageBytes            | 4194304  | bytes of one request's answer, 64 KiB to 64 MiB                |
| failOnDataLoss       | true     | fail when requested offsets were deleted; false continues at   |
|                      |          | the oldest kept one                                            |
| keyFile              | none     | file with the key, at each executor; default: TERNMQ_KEY_FILE  |
| caFile               | none     | file with the authority of https endpoints; default:           |
|                      |          | TERNMQ_CA_FILE                                                 |
| fetchTimeoutMs       | 30000    | time limit of one request                                      |
| fetchRetries         | 6        | repeats of a failed request; the pause doubles each time       |
| fetchRetryIntervalMs | 200      | the first pause                                                |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

import orjson

from tern_wire.limits import KIB, MIB
from tern_wire.names import check_topic

EARLIEST, LATEST = -2, -1
NAMES = (
    "endpoint",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxRowsPerPartition",
    "minPartitions",
    "pageBytes",
    "failOnDataLoss",
    "keyFile",
    "caFile",
    "fetchTimeoutMs",
    "fetchRetries",
    "fetchRetryIntervalMs",
)
# earliest, latest, or topic -> queue -> offset
Offsets = str | dict[str, dict[str, int]]


class OptionError(ValueError):
    """An option is unknown, missing or out of range; the text has its name and the legal values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked and typed options of a read, pickled into every task.

    0 rows or partitions means no limit.
    """

    endpoints: tuple[str, ...]
    topics: tuple[str, ...]
    starting: Offsets = "earliest"
    ending: Offsets = "latest"
    rows_per_partition_max: int = 0
    partitions_min: int = 0
    page_size_bytes: int = 4 * MIB
    fail_on_data_loss: bool = True
    # None: the environment of the reading process. The file's name travels to the tasks, its
    # content never does.
    key_file: str | None = None
    ca_file: str | None = None
    fetch_timeout_ms: int = 30_000
    fetch_retries: int = 6
    fetch_retry_interval_ms: int = 200


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options that Spark passes on (names in any case, values as text).

    OptionError when they are not valid.
    """
    names = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            raise OptionError(_unknown(name, names))
        values[known] = str(value)
    return ReadOptions(
        endpoints=_endpoints(values.get("endpoint", "")),
        topics=_topics(values.get("subscribe", "")),
        starting=_offsets("startingOffsets", values.get("startingOffsets", "earliest"), _topics(values["subscribe"])),
        ending=_offsets("endingOffsets", values.get("endingOffsets", "latest"), _topics(values["subscribe"])),
        rows_per_partition_max=_whole("maxRowsPerPartition", values, 0, 1, 2**62),
        partitions_min=_whole("minPartitions", values, 0, 1, 100_000),
        page_size_bytes=_whole("pageBytes", values, 4 * MIB, 64 * KIB, 64 * MIB),
        fail_on_data_loss=_truth("failOnDataLoss", values, default=True),
        key_file=values.get("keyFile"),
        ca_file=values.get("caFile"),
        fetch_timeout_ms=_whole("fetchTimeoutMs", values, 30_000, 100, 600_000),
        fetch_retries=_whole("fetchRetries", values, 6, 0, 100),
        fetch_retry_interval_ms=_whole("fetchRetryIntervalMs", values, 200, 1, 60_000),
    )


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name.lower() in {"path", "paths"}:
        return "load() takes no path here: name the topic with .option('subscribe', 'orders')."
    near = names[get_close_matches(name.lower(), names, n=1, cutoff=0.0)[0]]
    return f"'{name}' is not an option of format 'ternmq'; did you mean '{near}'? All: {', '.join(NAMES)}."


def _endpoints(text: str) -> tuple[str, ...]:
    found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    if not found:
        raise OptionError("endpoint is required: the proxies' URLs, such as 'http://127.0.0.1:8080'.")
    for url in found:
        parts = urlsplit(url)
        try:
            is_http = parts.scheme in {"http", "https"}
            legal = is_http and parts.hostname and not (parts.path or parts.query) and parts.port != 0
        except ValueError:  # a port that is no number
            legal = False
        if not legal:
            raise OptionError(f"endpoint: '{url}' is not a proxy's URL. Write it as 'http://host:port'.")
    return found


def _topics(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(check_topic(part.strip()) for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError("subscribe is required: one topic, or several separated by commas.")
    return found


def _offsets(option: str, text: str, topics: tuple[str, ...]) -> Offsets:
    word = text.strip().lower()
    if word == "latest" or (word == "earliest" and option == "startingOffsets"):
        return word
    words = "earliest, latest" if option == "startingOffsets" else "latest"
    shape = f'{option} is {words} or a document such as {{"{topics[0]}": {{"broker-a:0": 12}}}}; -1 is latest'
    shape += ", -2 earliest." if option == "startingOffsets" else "."
    try:
        document: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise OptionError(f"{shape} It is '{text[:80]}'.") from error
    if not isinstance(document, dict) or not all(isinstance(queues, dict) for queues in document.values()):
        raise OptionError(shape)
    lowest = EARLIEST if option == "startingOffsets" else LATEST
    for topic, queues in document.items():
        if topic not in topics:
            raise OptionError(f"{option} names topic '{topic}', which is not subscribed to ({', '.join(topics)}).")
        for queue, offset in queues.items():
            if type(offset) is not int or offset < lowest:
                raise OptionError(f"{option}: {offset!r} for {queue} of '{topic}' is not an offset. {shape}")
    return document


def _whole(option: str, values: Mapping[str, str], default: int, lowest: int, highest: int) -> int:
    text = values.get(option)
    if text is None:
        return default
    if not text.strip().isascii() or not text.strip().isdecimal() or not lowest <= int(text) <= highest:
        raise OptionError(f"{option} is '{text}'; use a whole number from {lowest} to {highest}.")
    return int(text)


def _truth(option: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(option, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{option} is '{text}'; use true or false.")
    return text == "true"
