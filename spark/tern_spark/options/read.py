"""The options of one read, checked together and typed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from tern_spark.options.contexts import replace_context
from tern_spark.options.places import AtTimes, Place, topics_of
from tern_spark.options.table import ALIASES, BATCH, BOTH, NAMES, OF_VIEWS, ROWS, STREAM
from tern_spark.options.values import OptionError
from tern_wire.limits import MIB

_KINDS = ("subscribe", "subscribePattern", "assign")
# What users of other connectors write.
_MEANT = {"topic": "subscribe", "topics": "subscribe", "bootstrapservers": "endpoint", "groupid": "group"}
_SHOWN = {BATCH: "a batch read (spark.read)", STREAM: "a stream (spark.readStream)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked and typed options of a read, pickled into every task.

    0 rows, bytes or partitions means no limit.
    """

    endpoints: tuple[str, ...]
    # One of these three is not empty, but for a view of all topics.
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    assigned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    view: str = "messages"
    starting: Place = "earliest"
    ending: Place = "latest"
    # What `startingTimestamp` and its siblings do with a queue that has no message so young.
    late_start: str = "error"
    group: str = ""
    namespace: str = ""
    # The filter as fields of a pull's query.
    selection: tuple[tuple[str, str], ...] = ()
    rows_per_partition_max: int = 0
    bytes_per_partition_max: int = 0
    partitions_min: int = 0
    rows_per_trigger_max: int = 0
    bytes_per_trigger_max: int = 0
    rows_per_trigger_min: int = 0
    trigger_delay_max_ms: int = 900_000
    driver_rows_max: int = 4_096
    admission: str = "proportional"
    page_size_bytes: int = 4 * MIB
    prefetch_pages: int = 2
    lease_ms: int = 600_000
    fail_on_data_loss: bool = True
    # None: the environment of the reading process. The file's name travels to the tasks, its
    # content never does.
    key_file: str | None = None
    ca_file: str | None = None
    fetch_timeout_ms: int = 30_000
    fetch_retries: int = 6
    fetch_retry_interval_ms: int = 200


def read_options(given: Mapping[str, str], reads: str = BATCH) -> ReadOptions:
    """Return the options that Spark passes on (names in any case, values as text) to a *reads*
    `batch` or `stream`.

    OptionError when they are not valid.
    """
    names = {name.lower(): name for name in NAMES} | ALIASES
    texts: dict[str, str] = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            raise OptionError(_unknown(name, names))
        if known in texts:
            raise OptionError(f"{known} is given twice, once as '{name}'; give it once.")
        texts[known] = str(value)
    replace_context(texts, os.environ)
    _check_together(texts)
    fields: dict[str, Any] = {}
    for row in ROWS:
        if row.name in texts:
            if row.reads not in {BOTH, reads}:
                raise OptionError(f"{row.name} has no meaning for {_SHOWN[reads]}; it is of {_SHOWN[row.reads]}.")
            fields[row.field] = row.parse(row.name, texts[row.name])
    fields.setdefault("starting", "earliest" if reads == BATCH else "latest")
    for side in ("starting", "ending"):
        for suffix in ("by", "at"):  # the time for all queues is the last to be set, so it is what counts
            place = fields.pop(f"{side}_{suffix}", None)
            fields[side] = fields.get(side, "latest") if place is None else place
    options = ReadOptions(**fields)
    _check_places(options, texts)
    return options


def _check_together(texts: Mapping[str, str]) -> None:
    if "endpoint" not in texts:
        raise OptionError(
            "endpoint is required: the proxies' URLs, such as 'http://127.0.0.1:8080'; or context, one by name."
        )
    kinds = [kind for kind in _KINDS if kind in texts]
    view = texts.get("view", "messages").strip().lower()
    if view != "messages":
        without = [name for name in texts if name not in OF_VIEWS]
        if without:
            raise OptionError(f"{without[0]} has no meaning for view '{view}'; it is of the messages.")
    elif not kinds:
        raise OptionError(
            "subscribe is required: one topic, or several separated by commas; or subscribePattern, assign."
        )
    if len(kinds) > 1:
        raise OptionError(f"{' and '.join(kinds)} are given; give exactly one of {', '.join(_KINDS)}.")
    if "maxRowsPerTrigger" in texts and "maxBytesPerTrigger" in texts:
        raise OptionError(
            "maxRowsPerTrigger and maxBytesPerTrigger are given; a batch has one limit, give one of them."
        )


def _check_places(options: ReadOptions, texts: Mapping[str, str]) -> None:
    if options.starting == "group" and not options.group:
        raise OptionError("startingOffsets is 'group', and no group is named; give the option group.")
    least, most = options.rows_per_trigger_min, options.rows_per_trigger_max
    if most and least > most:
        raise OptionError(f"minRowsPerTrigger is {least}, more than maxRowsPerTrigger, {most}; no batch would be both.")
    chosen = options.topics or tuple(options.assigned)
    for option, place in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        named = f"{option}ByTimestamp" if isinstance(place, AtTimes) else option
        for topic in topics_of(place):
            if chosen and topic not in chosen:
                raise OptionError(f"{named} names topic '{topic}', which is not subscribed to ({', '.join(chosen)}).")


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name.lower() in {"path", "paths"}:
        return "load() takes no path here: name the topic with .option('subscribe', 'orders')."
    near = _MEANT.get(name.lower()) or names[get_close_matches(name.lower(), names, n=1, cutoff=0.0)[0]]
    return f"'{name}' is not an option of format 'ternmq'; did you mean '{near}'? All: {', '.join(NAMES)}."
