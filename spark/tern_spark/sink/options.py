"""The options of `df.write.format("ternmq")` and of `df.writeStream`: names, defaults and ranges.

| option           | default        | meaning                                                      |
|------------------|----------------|--------------------------------------------------------------|
| endpoint         | required       | proxy URLs, comma separated; tasks spread over them, fail    |
|                  |                | over                                                         |
| delivery         | required       | at_least_once                                                |
| topic            | column `topic` | the topic of rows without one of their own                   |
| namespace        | none           | namespace of all topics                                      |
| idempotent       | true           | each row has an idempotency key, so a repeat is stored once; |
|                  |                | false: a repeat may be stored again, at any rate of rows     |
| keyFile          | none           | file with the key, at each executor; default:                |
|                  |                | TERNMQ_KEY_FILE                                              |
| caFile           | none           | file with the authority of https endpoints; default:         |
|                  |                | TERNMQ_CA_FILE                                               |
| requestsInFlight | 2              | requests of one task at a time, 1 to 16; rows with a message |
|                  |                | group are sent one request after the other                   |
| requestTimeoutMs | 30000          | time limit of one request                                    |
| sendTimeoutMs    | 120000         | time limit of one request with all its repeats               |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tern_client.transport.endpoints import EndpointMalformed, Endpoints
from tern_spark.options import OptionError, values
from tern_wire.names import check_namespace, check_topic

WRITE_NAMES = (
    "endpoint",
    "delivery",
    "topic",
    "namespace",
    "idempotent",
    "keyFile",
    "caFile",
    "requestsInFlight",
    "requestTimeoutMs",
    "sendTimeoutMs",
)
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
    _check_delivery(texts.get("delivery", ""))
    topic, namespace = texts.get("topic", "").strip(), texts.get("namespace", "").strip()
    return WriteOptions(
        endpoints=_endpoints(texts.get("endpoint", "")),
        topic=check_topic(topic) if topic else "",
        namespace=check_namespace(namespace, "/namespace") if namespace else "",
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


def _check_delivery(text: str) -> None:
    if text.strip().lower() != "at_least_once":
        told = f"delivery is '{text}'" if text else "delivery is required"
        raise OptionError(f"{told}; use .option('delivery', 'at_least_once').")


def _endpoints(text: str) -> tuple[str, ...]:
    urls = [part.strip() for part in text.split(",") if part.strip()]
    if not urls:
        raise OptionError("endpoint is required: the proxies' URLs, such as 'http://127.0.0.1:8080'.")
    try:
        return Endpoints(urls).urls
    except EndpointMalformed as error:
        raise OptionError(f"endpoint: {error}") from error
