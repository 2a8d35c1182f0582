"""The table of options: name, kind of read, parser, default as shown, and meaning.

Names follow Spark's Kafka source. docs/spark.md has this table, made from the rows below. Each row
sets the field of ReadOptions that it names.
"""

from dataclasses import dataclass

from tern_spark.options import places, values
from tern_spark.options.values import Parser
from tern_wire.limits import KIB, MIB

BATCH, STREAM, BOTH = "batch", "stream", "both"
_ROWS_MAX = 2**62
# Views beside the messages, and the options that they have.
VIEWS = ("queues", "topics", "groups", "lag", "dlq", "scheduled", "transactions")
OF_VIEWS = frozenset(
    {
        *("view", "endpoint", "context", "subscribe", "subscribePattern", "group", "namespace", "keyFile", "caFile"),
        *("fetchTimeoutMs", "fetchRetries", "fetchRetryIntervalMs"),
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One option. *reads*: `batch`, `stream` or `both`; *default* is the text of the documents."""

    name: str
    field: str
    reads: str
    parse: Parser
    default: str
    meaning: str


ROWS = (
    Row(
        *("endpoint", "endpoints", BOTH, values.endpoints, "required"),
        "URLs of proxies, separated by commas; tasks spread over them and fail over",
    ),
    Row(
        *("context", "endpoints", BOTH, values.plain, "none"),
        "instead of `endpoint`: a context of the driver's user (`ternmq context add`), with its namespace, key and authority",
    ),
    Row(
        *("subscribe", "topics", BOTH, values.topics, "one of three"),
        "topics, separated by commas",
    ),
    Row(
        *("subscribePattern", "topic_pattern", BOTH, values.pattern, "one of three"),
        "a regular expression for whole names of topics; a stream finds new ones",
    ),
    Row(
        *("assign", "assigned", BOTH, values.assignment, "one of three"),
        '`{"orders": ["broker-a:0"]}`: these queues only',
    ),
    Row(
        *("view", "view", BATCH, values.word("messages", *VIEWS), "`messages`"),
        "another table than the messages: `queues`, `topics`, `groups`, `lag`, `dlq`, `scheduled`, `transactions`; of the topics and the group that are named, or of all",
    ),
    Row(
        *("startingOffsets", "starting", BOTH, places.starting, "`earliest`; stream: `latest`"),
        'where to begin: `earliest`, `latest`, `group` (its committed offsets), `-100` (rows before the end), `-10m` (a time ago), or `{"orders": {"broker-a:0": 12}}`, -2 earliest, -1 latest',
    ),
    Row(
        *("startingTimestamp", "starting_at", BOTH, places.at, "none"),
        "begin at the first message visible from then on, ms since 1970 or ISO 8601; before `startingOffsets`",
    ),
    Row(
        *("startingOffsetsByTimestamp", "starting_by", BOTH, places.at_times, "none"),
        'the same by queue: `{"orders": {"broker-a:0": 1767225600000}}`, or by topic: `{"orders": "2026-01-31"}`',
    ),
    Row(
        *("startingOffsetsByTimestampStrategy", "late_start", BOTH, values.word("error", "latest"), "`error`"),
        "a queue without a message from that time on: `error`, or begin at its end (`latest`)",
    ),
    Row(
        *("endingOffsets", "ending", BATCH, places.ending, "`latest`"),
        "where to end: `latest`, or a document of offsets, -1 latest",
    ),
    Row(
        *("endingTimestamp", "ending_at", BATCH, places.at, "none"),
        "end before the first message visible from then on; before `endingOffsets`",
    ),
    Row(
        *("endingOffsetsByTimestamp", "ending_by", BATCH, places.at_times, "none"),
        "the same by queue or by topic",
    ),
    Row(
        *("group", "group", BOTH, values.group, "none"),
        "a consumer group: a stream begins where it stands, pins its begin there and commits its progress; a batch reads it for `startingOffsets=group`",
    ),
    Row(
        *("namespace", "namespace", BOTH, values.namespace, "none"),
        "the namespace of topics and group",
    ),
    Row(
        *("filter", "selection", BOTH, values.selection, "`*`"),
        "tags (`paid \\|\\| sent`) or an SQL92 condition over properties, evaluated in the broker",
    ),
    Row(
        *("maxRowsPerPartition", "rows_per_partition_max", BOTH, values.whole(1, _ROWS_MAX), "none"),
        "at most so many offsets in a task; larger ranges are split",
    ),
    Row(
        *("maxBytesPerPartition", "bytes_per_partition_max", BOTH, values.whole(64 * KIB, _ROWS_MAX), "none"),
        "about so many stored bytes in a task, by the mean size of the rows to be read",
    ),
    Row(
        *("minPartitions", "partitions_min", BOTH, values.whole(1, 100_000), "none"),
        "at least so many tasks, if there are rows enough",
    ),
    Row(
        *("maxRowsPerTrigger", "rows_per_trigger_max", STREAM, values.whole(1, _ROWS_MAX), "none"),
        "at most so many offsets in a batch; also `maxOffsetsPerTrigger`",
    ),
    Row(
        *("maxBytesPerTrigger", "bytes_per_trigger_max", STREAM, values.whole(1, _ROWS_MAX), "none"),
        "at most so many stored bytes in a batch, or one message; instead of `maxRowsPerTrigger`",
    ),
    Row(
        *("minRowsPerTrigger", "rows_per_trigger_min", STREAM, values.whole(1, _ROWS_MAX), "none"),
        "hold a batch until so many offsets wait; not under `availableNow`",
    ),
    Row(
        *("maxTriggerDelay", "trigger_delay_max_ms", STREAM, values.duration, "`15m`"),
        "the longest hold, from the last batch on",
    ),
    Row(
        *("maxDriverRows", "driver_rows_max", STREAM, values.whole(0, 100_000), "4096"),
        "a batch of at most so many offsets (and 8 MiB) is read by the driver, which spares a task of Python, some 60 ms; 0: always by tasks",
    ),
    Row(
        *(
            "admission",
            "admission",
            STREAM,
            values.word("proportional", "even", "oldest", "aligned"),
            "`proportional`",
        ),
        "how a limit is shared: by backlog; `even` by queue; `oldest` store time first; `aligned`: all queues up to one store time",
    ),
    Row(
        *("failOnDataLoss", "fail_on_data_loss", BOTH, values.truth, "`true`"),
        "fail when wanted offsets were deleted; `false` continues at the oldest one kept, counts what it skipped, and logs one warning",
    ),
    Row(
        *("lease", "lease_ms", BATCH, values.lease, "`10m`"),
        "retention keeps the planned ranges for so long, and tasks renew it; up to `24h`, 0 for none",
    ),
    Row(
        *("pageBytes", "page_size_bytes", BOTH, values.whole(64 * KIB, 64 * MIB), "4194304"),
        "bytes of one request's answer, 64 KiB to 64 MiB",
    ),
    Row(
        *("prefetchPages", "prefetch_pages", BOTH, values.whole(0, 64), "2"),
        "pages that a task holds ready while it decodes one, each of up to `pageBytes`; 0 to 64, 0 fetches them in turn",
    ),
    Row(
        *("keyFile", "key_file", BOTH, values.plain, "none"),
        "file with the key, at the driver and each executor; without it `TERNMQ_KEY_FILE`",
    ),
    Row(
        *("caFile", "ca_file", BOTH, values.plain, "none"),
        "file with the authority of https endpoints, likewise; without it `TERNMQ_CA_FILE`",
    ),
    Row(
        *("fetchTimeoutMs", "fetch_timeout_ms", BOTH, values.whole(100, 600_000), "30000"),
        "time limit of one request",
    ),
    Row(
        *("fetchRetries", "fetch_retries", BOTH, values.whole(0, 100), "6"),
        "repeats of a failed request",
    ),
    Row(
        *("fetchRetryIntervalMs", "fetch_retry_interval_ms", BOTH, values.whole(1, 60_000), "200"),
        "the first pause between them; it doubles each time",
    ),
)
NAMES = tuple(row.name for row in ROWS)
# Other names of options, in lower case as Spark passes them on.
ALIASES = {"maxoffsetspertrigger": "maxRowsPerTrigger"}
