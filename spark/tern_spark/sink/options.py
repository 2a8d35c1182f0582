"""The options of `df.write.format("ternmq")` and of `df.writeStream`: names, defaults and ranges.

| option            | default        | meaning                                                     |
|-------------------|----------------|-------------------------------------------------------------|
| endpoint          | required       | proxy URLs, comma separated; tasks spread over them, fail   |
|                   |                | over                                                        |
| context           | none           | instead of endpoint: a context of the driver's user         |
| delivery          | exactly_once   | every batch is visible once, whole, or not at all;          |
|                   |                | at_least_once: rows are visible as they arrive              |
| topic             | column `topic` | the topic of rows without one of their own                  |
| namespace         | none           | namespace of all topics                                     |
| acceptLostHistory | false          | exactly once: begin though the mesh does not know the       |
|                   |                | batches before                                              |
| stageLife         | 1h             | exactly once: what a failed write has staged is kept so     |
|                   |                | long, 10m to 1d                                             |
| idempotent        | true           | at least once: each row has an idempotency key, so a repeat |
|                   |                | is stored once; false: a repeat may be stored again, at any |
|                   |                | rate of rows                                                |
| keyFile           | none           | file with the key, at each executor; default:               |
|                   |                | TERNMQ_KEY_FILE                                             |
| caFile            | none           | file with the authority of https endpoints; default:        |
|                   |                | TERNMQ_CA_FILE                                              |
| requestsInFlight  | 2              | requests of one task at a time, 1 to 16; rows of a message  |
|                   |                | group are sent one after the other (at least once)          |
| requestTimeoutMs  | 30000          | time limit of one request                                   |
| sendTimeoutMs     | 120000         | time limit of one request with all its repeats              |
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tern_client.transport.endpoints import EndpointMalformed, Endpoints
from tern_spark.options import OptionError, values
from tern_spark.options.contexts import replace_context
from tern_wire.limits_publications import STAGE_LIFE_DEFAULT_MS, STAGE_LIFE_MAX_MS, STAGE_LIFE_MIN_MS
from tern_wire.names import check_namespace, check_topic

WRITE_NAMES = (
    "endpoint",
    "context",
    "delivery",
    "topic",
    "namespace",
    "acceptLostHistory",
    "stageLife",
    "idempotent",
    "keyFile",
    "caFile",
    "requestsInFlight",
    "requestTimeoutMs",
    "sendTimeoutMs",
)
_DELIVERIES = ("exactly_once", "at_least_once")
# Options that a write with this delivery does not have.
_OF_OTHERS: Mapping[str, tuple[str, ...]] = {
    "exactly_once": ("idempotent",),
    "at_least_once": ("acceptLostHistory", "stageLife"),
}
# Spark's own options of a stream, which it passes on to the sink.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked and typed options of a write, pickled into every task. *topic*, *namespace*: ""
    for none.
    """

    endpoints: tuple[str, ...]
    topic: str = ""
    namespace: str = ""
    is_exactly_once: bool = True
    accepts_lost_history: bool = False
    stage_life_ms: int = STAGE_LIFE_DEFAULT_MS
    is_idempotent: bool = True
    # The file's name travels to the tasks, its content never does.
    key_file: str | None = None
    ca_file: str | None = None
    requests_in_flight: int = 2
    request_timeout_ms: int = 30_000
    send_timeout_ms: int = 120_000


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options that Spark passes on (names in any case, values as text).

    OptionError when they are not valid.
    """
    names = {name.lower(): name for name in WRITE_NAMES}
    texts: dict[str, str] = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is not None:
            texts[known] = str(value)
        elif name.lower() not in _OF_SPARK:
            raise OptionError(_unknown(name, names))
    replace_context(texts, os.environ)
    is_exactly_once = _is_exactly_once(texts)
    topic, namespace = texts.get("topic", "").strip(), texts.get("namespace", "").strip()
    return WriteOptions(
        endpoints=_endpoints(texts.get("endpoint", "")),
        topic=check_topic(topic) if topic else "",
        namespace=check_namespace(namespace, "/namespace") if namespace else "",
        is_exactly_once=is_exactly_once,
        accepts_lost_history=values.truth("acceptLostHistory", texts.get("acceptLostHistory", "false")),
        stage_life_ms=_stage_life_ms(texts.get("stageLife", "1h")),
        is_idempotent=values.truth("idempotent", texts.get("idempotent", "true")),
        key_file=texts.get("keyFile"),
        ca_file=texts.get("caFile"),
        requests_in_flight=values.whole(1, 16)("requestsInFlight", texts.get("requestsInFlight", "2")),
        request_timeout_ms=values.whole(100, 600_000)("requestTimeoutMs", texts.get("requestTimeoutMs", "30000")),
        send_timeout_ms=values.whole(100, 3_600_000)("sendTimeoutMs", texts.get("sendTimeoutMs", "120000")),
    )


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name.lower() in {"path", "paths"}:
        return "save() and start() take no path here: name the topic with .option('topic', 'orders')."
    near = names[get_close_matches(name.lower(), names, n=1, cutoff=0.0)[0]]
    return f"'{name}' is not an option of a write to 'ternmq'; did you mean '{near}'? All: {', '.join(WRITE_NAMES)}."


def _is_exactly_once(texts: Mapping[str, str]) -> bool:
    delivery: str = values.word(*_DELIVERIES)("delivery", texts.get("delivery", _DELIVERIES[0]))
    for name in _OF_OTHERS[delivery]:
        if name in texts:
            other = _DELIVERIES[1 - _DELIVERIES.index(delivery)]
            raise OptionError(f"{name} belongs to delivery={other}; this write has delivery={delivery}.")
    return delivery == _DELIVERIES[0]


def _stage_life_ms(text: str) -> int:
    life_ms = values.duration("stageLife", text)
    if not STAGE_LIFE_MIN_MS <= life_ms <= STAGE_LIFE_MAX_MS:
        raise OptionError(f"stageLife is '{text[:80]}'; use a duration from '10m' to '1d'.")
    return life_ms


def _endpoints(text: str) -> tuple[str, ...]:
    urls = [part.strip() for part in text.split(",") if part.strip()]
    if not urls:
        raise OptionError("endpoint is required: the proxies' URLs, such as 'http://127.0.0.1:8080'.")
    try:
        return Endpoints(urls).urls
    except EndpointMalformed as error:
        raise OptionError(f"endpoint: {error}") from error
