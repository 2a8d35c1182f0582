"""Example values of the API document: names in paths, and fields of problems."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

import orjson

from tern_service.problems import problem_reply
from tern_wire.errors import TernError
from tern_wire.limits import CONNECTIONS_MAX, MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.limits_publications import PUBLISHED_MESSAGES_MAX

EXAMPLE_NAMES = {
    "topic": "orders",
    "group": "billing",
    "queue": "broker-a:3",
    "broker_group": "broker-a",
    "member": "worker-1",
    "task": "5b1f0c9a7e2d4c3b8a190f6e",
    "lease": "c41d7be09a5f2e3806b7d914.broker-a",
    "correlation_id": "invoice-7",
    "message_id": "7F3A9C01D2E4B5A6978800000000002A",
    "recall_handle": "AQAAAZu7yvoAAAAAAAAAKmJyb2tlci1hAAAAAAAAAAAAAAAA",
    "producer_group": "shop",
    "transaction_id": "AQAAAAAGQAAAAAAABwAAAAAAAAAAYnJva2VyLWEAAAAAAAAAAAAAAAA",
    "principal": "shop",
    "kid": "Zk3vQ8mT1xWc5RbN",
    "problem": "topic-not-found",
    "query": "daily-delays",
    "batch": "0",
    "partition": "3",
    "attempt": "17",
    "chunk": "0",
}
# Example values of the fields of errors, and the exceptions of single errors.
FIELDS: Mapping[str, Any] = {
    "accept": "text/html",
    "attempt": 17,
    "batch": 41,
    "chunk": 0,
    "last": 41,
    "partition": 3,
    "query": EXAMPLE_NAMES["query"],
    "ask_again": "/v1/topics/orders/requests/invoice-7?client=shop-7&wait=20s",
    "actual": 4_194_305,
    "allowed": "none",
    "broker_group": "broker-a",
    "client": "shop-7",
    "correlation_id": "invoice-7",
    "node": "broker-a-0",
    "content_type": "text/csv",
    "done": "broker-a",
    "compression": "LZ4",
    "key": "orders",
    "kid": EXAMPLE_NAMES["kid"],
    "leader": "broker-a-1",
    "message": "The message at offset 42",
    "method": "GET",
    "namespace": "order-config",
    "path": "/v1/topics/orders/messages",
    "position": 4_096,
    "required": "a broker",
    "term": 3,
    "missing": "broker-b",
    "principal": "shop",
    "problem": "no-such-code",
    "encoding": "gzip",
    "endpoints": "http://127.0.0.1:9876",
    "expected": 40,
    "expired": 1,
    "epoch": 12,
    "left": "idempotency keys of before are forgotten, in 42 s",
    "field": "delay",
    "group": "billing",
    "known": "broker-a",
    "limit": MESSAGE_BODY_SIZE_MAX_BYTES,
    "limit_s": 30,
    "loss": "its messages",
    "member": "worker-1",
    "message_id": EXAMPLE_NAMES["message_id"],
    "min_offset": 1_000,
    "name": "orders",
    "offset": 42,
    "open": 2,
    "permission": "write",
    "producer_group": "shop",
    "parameter": "delay",
    "lease": "c41d7be09a5f2e3806b7d914.broker-a",
    "pointer": "/messages/3",
    "queue": "broker-a:9",
    "held_by": "Group 'billing' has not read 12,345 messages of topic 'orders', younger than the retention, which hold the space: let it read on.",
    "lack": "Too many open files",
    "remedy": "Remove some, or settle what was received.",
    "reason": "Expected `str`, got `int`",
    "required_permission": "PUB of topic 'orders'",
    "state": "committed",
    "supported": "application/json",
    "task": "5b1f0c9a7e2d4c3b8a190f6e",
    "topic": "orders",
    "topics": "bills, orders",
    "unit": "bytes",
    "wanted": 4,
    "what": "groups",
}
OTHER_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "already-exists": {"what": "topic"},
    "check-url-forbidden": {"reason": "'example.org' is not among the hosts that may be called"},
    "confirmation-needed": {"what": "topic"},
    "read-lease-broken": {"reason": "retention has dropped messages of queue 3 of topic 'orders'"},
    "upgrade-unfinished": {"what": "read leases"},
    "group-conflict": {"reason": "'fifo' can only be changed before its first receive"},
    "batch-too-large": {"actual": 2_000, "limit": 1_024, "unit": "messages"},
    "batch-too-many-rows": {"limit": PUBLISHED_MESSAGES_MAX},
    "stages-full": {"what": "staged messages", "actual": 2_000_000, "limit": 2_000_000},
    "illegal-group": {"group": "no spaces"},
    "method-not-allowed": {"allowed": "GET, POST"},
    "route-not-found": {"path": "/v1/topic"},
    "stale-registration": {"actual": 4},
    "illegal-filter": {"position": 8, "reason": "a value is missing behind '>'"},
    "illegal-member": {"member": "no spaces"},
    "illegal-invisible-time": {"actual": "13h"},
    "illegal-correlation-id": {"correlation_id": "no spaces", "pointer": "query/correlation_id"},
    "illegal-reply-address": {"reply_to": "nobody", "pointer": "query/reply_to"},
    "illegal-timeout": {"actual": "60s"},
    "illegal-topic": {"topic": "no/slashes"},
    "topic-reserved": {
        "topic": "TBW102",
        "keeper": "RocketMQ, whose brokers and clients could not read a store with it",
    },
    "illegal-wait": {"actual": "60s"},
    "limit-reached": {"actual": 1_000, "limit": 1_000},
    "quota-exceeded": {"limit": 1_000, "unit": "requests/s"},
    "too-many-failures": {"limit": 10},
    "principal-changed": {"actual": 4, "expected": 3},
    "offset-moved": {"actual": 42, "queue": "broker-a:3"},
    "properties-too-large": {"actual": 20_000, "limit": 16_384},
    "overloaded": {"limit": CONNECTIONS_MAX, "what": "connections"},
    "share-exceeded": {"what": "bytes of requests in flight"},
    "body-too-slow": {"pause_s": 10, "rate_bytes_per_s": 1_024, "limit_s": 30},
    "request-malformed": {"reason": "Content-Length is not a number"},
    "topic-conflict": {"actual": 8},
}


def problem_example(kind: type[TernError]) -> dict[str, Any]:
    """Return a whole problem document of *kind*, as the answer to a send."""
    wanted = {name for _, name, _, _ in Formatter().parse(kind.fix) if name}
    fields = {**FIELDS, **OTHER_FIELDS.get(kind.code, {})}
    error = kind(**{name: fields[name] for name in sorted(wanted)})
    _, _, body = problem_reply(error, instance="/v1/topics/orders/messages", request_id="5b1f0c9a7e-2a")
    document: dict[str, Any] = orjson.loads(body)
    return document
