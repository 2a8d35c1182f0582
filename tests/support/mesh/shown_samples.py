"""What a proxy, a name server and a broker answer to every command that shows something: real-looking values, as they are on the wire.

Times are of 2026 (13 digits), flags are true and false, lists have one value and several, and what may be missing is missing somewhere.
"""

import re
from collections.abc import Callable
from typing import Any

from tests.support.client.scripted_proxy import Asked, Reply, packed, said

T = 1_795_439_506_084
KID = "Zk3vQ8mT1xWc5RbN"
MESSAGE: dict[str, Any] = {
    "message_id": "7F0000011A2B",
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
    "body": b"hello",
    "content_type": "",
    "tag": "paid",
    "keys": ["4711", "4712"],
    "properties": {"shop": "berlin"},
    "born_at": T,
    "stored_at": T,
    "attempt": 1,
    "receipt_handle": "h1",
    "invisible_until": T,
}
LETTER = {
    **MESSAGE,
    "dlq": {
        "offset": "broker-a:17",
        "origin": {"topic": "orders", "queue": "broker-a:3", "offset": 42},
        "attempts": 16,
        "cause": "rejected",
        "reason": "no such shop",
        "dead_at": T,
    },
}
TASK = {
    "task": "5b1f",
    "type": "redrive",
    "group": "billing",
    "state": "running",
    "dry_run": False,
    "total": 3,
    "examined": 2,
    "redriven": 1,
    "skipped": 0,
    "failed": 0,
    "started_at": T,
    "finished_at": None,
    "failures": [],
}
PUBLICATION: dict[str, Any] = {
    "query": "nightly",
    "owner": "etl",
    "broker_group": "broker-a",
    "batch": 41,
    "rows": 12_000,
    "published_at": T,
    "final": False,
    "stages": 1,
    "staged_rows": 1_024,
    "topics": ["orders"],
}
STAGE = {
    "batch": 42,
    "partition": 3,
    "attempt": 17,
    "rows": 1_024,
    "size_bytes": 204_800,
    "begun_at": T,
    "staged_at": T,
    "kept_until": T,
}
ABANDONED = {"query": "nightly", "batch": 42, "stages": 1, "rows": 1_024}
LEASE: dict[str, Any] = {
    "lease": "c41d7be09a5f2e3806b7d914.broker-a",
    "owner": "archive",
    "taken_at": T,
    "leased_until": T,
    "broken_by": "",
    "topics": [{"topic": "orders", "queues": 8, "messages": 344}, {"topic": "bills", "queues": 1, "messages": 0}],
}
RECEIPT = {"message_id": "m1", "queue": "broker-a:1", "offset": 7, "born_at": T, "replayed": True}
SCHEDULED = {
    "message_id": "m1",
    "topic": "orders",
    "queue": "broker-a:1",
    "deliver_at": T,
    "born_at": T,
    "recall_handle": "r1",
    "tag": "",
    "keys": ["4711"],
    "body_size": 5,
}
TOPIC = {
    "topic": "orders",
    "type": "MIXED",
    "permission": "rw",
    "queues": 8,
    "broker_groups": ["broker-a", "broker-b"],
    "attributes": {"owner": "billing"},
    "groups": ["billing"],
    "created": True,
    "created_at": T,
    "offsets": [{"queue": "broker-a:0", "min_offset": 0, "max_offset": 7}],
}
GROUP = {
    "group": "billing",
    "start": "earliest",
    "invisible_ms": 60_000,
    "max_attempts": 16,
    "fifo": True,
    "consume": True,
    "broadcast": False,
    "attributes": {},
    "retry": {"delays_ms": [10_000, 30_000, 7_200_000]},
    "topics": [{"topic": "orders", "lag": 3, "leased": 1, "available": 2}],
}
LAG_QUEUE = {
    "queue": "broker-a:0",
    "committed": None,
    "max_offset": 7,
    "lag": 7,
    "lag_ms": 7_200_000,
    "leased": 0,
    "resting": 0,
    "dying": 0,
}
TRANSACTION = {
    "transaction_id": "AQ-1",
    "producer_group": "shop",
    "state": "open",
    "begun_at": T,
    "check_at": T,
    "attempts": 1,
    "message_count": 1,
    "messages": [{"topic": "orders", "queue": "broker-a:3", "size": 120}],
    "checks": [{"attempt": 1, "at": T, "checker": "c-7", "answer": "http-503", "latency_ms": 12}],
}
ENDED = {"transaction_id": "AQ-1", "state": "committed", "by": "hand", "messages": 1, "topic": "orders"}
PRODUCER_GROUP = {
    "producer_group": "shop",
    "check_url": "http://127.0.0.1:9000/checks",
    "has_secret": True,
    "timeout_ms": 3_000,
    "max_checks": 15,
    "check_after_ms": 6_000,
    "check_interval_ms": 30_000,
    "include_body": False,
    "stats": {"open": 1, "expired": 2, "committed": 30, "rolled_back": 4, "checks": 5},
}
KEY = {
    "kid": KID,
    "type": "bearer",
    "state": "active",
    "not_before": T,
    "expires_at": T,
    "created_at": T,
    "networks": ["10.0.0.0/8"],
    "description": "till 3",
    "missing_broker_groups": [],
}
GRANT = {"effect": "allow", "actions": ["PUB", "SUB"], "kind": "topic", "pattern": "orders"}
PRINCIPAL = {
    "principal": "shop",
    "version": 1,
    "keys": [KEY, {**KEY, "expires_at": 0}],
    "requests_per_s": 5,
    "bytes_per_s": 0,
    "grants": [GRANT],
    "created": False,
}
PLACEMENT = {
    "topic": "orders",
    "broker_groups": ["broker-a"],
    "hosts": ["broker-a", "broker-b"],
    "epoch": 2,
    "before": ["broker-b"],
    "is_moving": True,
    "moving_until": T,
    "changed": True,
}
BROKER_GROUP = {
    "leader": "broker-a-0",
    "term": 3,
    "group_size": 3,
    "writable": True,
    "nodes": {"broker-a-0": {"connected": True}, "broker-a-1": {"connected": False}},
}
LEFT_ROW = {
    "namespace": "",
    "topic": "orders",
    "why": ["placed", "unread"],
    "unread": 3,
    "in_flight": 1,
    "scheduled": 0,
    "groups": [{"group": "billing", "unread": 3}],
}
LEFT = {
    "broker_group": "broker-a",
    "writable": True,
    "placed": 1,
    "moving": 0,
    "unread": 3,
    "in_flight": 1,
    "scheduled": 0,
    "transactions": 1,
    "dead_letters": 0,
    "dead_letters_left": [],
    "unclaimed": 1,
    "is_drained": False,
    "topics_left": [LEFT_ROW],
}
FLOW = {"messages_per_s": 1.5, "bytes_per_s": 1_500.0}
STAT_QUEUE = {"queue": "broker-a:0", "min_offset": 0, "max_offset": 7, "messages": 7, "in_messages_per_s": 1.5}
NODE = {"node": "broker-a-0", "http": "", "link": "127.0.0.1:1", "is_leader": True}
MEMBER = {
    "member": "m-1",
    "subscriptions": {"orders": "*"},
    "strategy": "average",
    "room": "",
    "address": "10.0.0.1",
    "version": "1",
}
BROKER = {
    "node": "broker-a-0",
    "role": "leader",
    "serving": True,
    "standing": "member",
    "term": 3,
    "version": 2,
    "level": 1,
    "commit_index": 41,
    "applied_index": 41,
    "last_index": 42,
    "fsync_ms": 1.5,
    "disk_permille": 123,
    "held": False,
    "peers": [{"node": "broker-a-1", "connected": True, "match_index": 40}],
    "comparison": {"index": 40, "judged_index": 40, "digests": {"broker-a-0": "ab"}, "chosen": "", "undecided": True},
    "blocked": {
        "index": 7,
        "crc": 5,
        "error": "KeyError",
        "where": "sending.py:5",
        "release": "0.1.0",
        "asked": False,
        "commands": {"send": 3},
    },
}
SERVER = {
    "warm": True,
    "topics": 3,
    "configurations": 1,
    "wiped": ["broker-b"],
    "members": 1,
    "broker_groups": {"broker-a": {"nodes": {"broker-a-0": NODE}, "leader": "broker-a-0"}},
}

ROUTE = {
    "topic": "orders",
    "warm": True,
    "order": "",
    "broker_groups": {"broker-a": {"leader": "broker-a-0", "nodes": {"broker-a-0": NODE}}},
    "queue_data": [{"broker_group": "broker-a", "read_queues": 8, "write_queues": 8, "perm": 6}],
}
_GONE = Reply(status=204, body=b"", headers={})

# Method, path (a pattern of all of it, without the query), and what is answered.
_ANSWERS: list[tuple[str, str, Callable[[], Reply]]] = [
    ("POST", r"/v1/topics/\w+/messages", lambda: packed(RECEIPT, 201)),
    ("POST", r"/v1/topics/\w+/messages/batch", lambda: packed({"results": [RECEIPT]}, 201)),
    ("POST", r"/v1/topics/\w+/groups/\w+/receive", lambda: packed({"messages": [MESSAGE]})),
    ("POST", r"/v1/topics/\w+/groups/\w+/settle", lambda: packed({"results": [{"ok": True}]})),
    ("POST", r"/v1/topics/\w+/requests", lambda: packed({**MESSAGE, "correlation_id": "c"})),
    ("POST", r"/v1/topics/\w+/replies", lambda: packed(RECEIPT, 201)),
    ("GET", r"/v1/messages/\w+/trace", lambda: said(_trace())),
    ("DELETE", r"/v1/(topics|groups|producer-groups)/\w+", lambda: _GONE),
    ("DELETE", r"/v1/(topics/\w+/scheduled|principals/\w+/keys)/\w+", lambda: _GONE),
    ("DELETE", r"/v1/read-leases/[\w.-]+", lambda: _GONE),
    ("GET", r"/v1/read-leases", lambda: said({"leases": [LEASE]})),
    ("GET", r"/v1/publications", lambda: said({"publications": [PUBLICATION]})),
    ("GET", r"/v1/publications/[\w.-]+", lambda: said({**PUBLICATION, "staged": [STAGE]})),
    ("DELETE", r"/v1/publications/[\w.-]+/batches/\d+", lambda: said({**ABANDONED})),
    ("GET", r"/v1/acls", lambda: said({"acls": [{"principal": "shop", **GRANT}]})),
    ("GET", r"/v1/cluster", lambda: said({**SERVER, "broker_groups": {"broker-a": BROKER_GROUP}})),
    ("GET", r"/v1/broker-groups/[\w-]+", lambda: said(LEFT)),
    ("POST", r"/v1/broker/[\w-]+", lambda: said({"asked": True, "reason": "", "to": "", "leader": ""}, 202)),
    ("POST", r"/v1/broker-groups/[\w-]+/write-permission", lambda: said({"topics": 3})),
    ("GET", r"/v1/topics/\w+/route", lambda: said(ROUTE)),
    ("GET", r"/v1/kv", lambda: said({"namespaces": {"ORDER": 1}})),
    ("GET", r"/v1/kv/\w+", lambda: said({"entries": {"orders": "broker-a:8"}})),
    ("GET", r"/v1/kv/\w+/\w+", lambda: said({"value": "broker-a:8"})),
    ("(PUT|DELETE)", r"/v1/kv/\w+/\w+", lambda: said({"removed": True, "created": False})),
    ("GET", r"/v1/topics/\w+/messages/\w+", lambda: packed(MESSAGE)),
    ("GET", r"/v1/topics/\w+/messages", lambda: packed({"messages": [MESSAGE]})),
    ("GET", r"/v1/topics/\w+/scheduled", lambda: said({"messages": [SCHEDULED]})),
    ("GET", r"/v1/groups/\w+/dlq", lambda: packed({"group": "billing", "messages": [LETTER]})),
    ("DELETE", r"/v1/groups/\w+/dlq", lambda: said({"purged": 3})),
    ("POST", r"/v1/groups/\w+/dlq/redrive", lambda: said(TASK, 202)),
    ("(GET|DELETE)", r"/v1/tasks/\w+", lambda: said(TASK)),
    ("GET", r"/v1/transactions", lambda: said({"transactions": [TRANSACTION]})),
    ("GET", r"/v1/transactions/\S+", lambda: said(TRANSACTION)),
    ("POST", r"/v1/transactions/\S+", lambda: said({**ENDED, "queue": "broker-a:3", "offset": 42})),
    ("GET", r"/v1/producer-groups", lambda: said({"producer_groups": [PRODUCER_GROUP]})),
    ("(GET|PUT)", r"/v1/producer-groups/\w+", lambda: said(PRODUCER_GROUP)),
    ("GET", r"/v1/topics", lambda: said({"topics": [TOPIC]})),
    ("GET", r"/v1/topics/\w+/offsets", lambda: said({"queues": TOPIC["offsets"]})),
    ("GET", r"/v1/topics/\w+/stats", lambda: said(_stats())),
    ("(GET|PUT)", r"/v1/topics/\w+/placement", lambda: said(PLACEMENT)),
    ("(GET|PUT|PATCH|POST)", r"/v1/topics/\w+", lambda: said(TOPIC)),
    ("GET", r"/v1/groups", lambda: said({"groups": [GROUP]})),
    ("GET", r"/v1/groups/\w+/lag", lambda: said(_lag())),
    ("GET", r"/v1/groups/\w+/members", lambda: said(_members())),
    ("GET", r"/v1/groups/\w+/offsets", lambda: said({"offsets": {"broker-a:0": 3}})),
    ("GET", r"/v1/groups/\w+/assignments", lambda: said(_assignments())),
    ("GET", r"/v1/groups/\w+/locks", lambda: said(_locks())),
    ("POST", r"/v1/groups/\w+/seek", lambda: said({"queues": [_seek()]})),
    ("(GET|PUT|PATCH|POST)", r"/v1/groups/\w+", lambda: said(GROUP)),
    ("GET", r"/v1/principals", lambda: said({"principals": [PRINCIPAL]})),
    ("POST", r"/v1/principals/\w+/keys", lambda: said({**KEY, "principal": "shop", "key": "mqk_x"}, 201)),
    ("(GET|PUT)", r"/v1/principals/\w+", lambda: said(PRINCIPAL)),
    ("GET", r"/v1/broker", lambda: said(BROKER)),
]


def _trace() -> dict[str, Any]:
    row = {"group": "billing", "state": "leased", "attempts": 1, "until": T, "reason": ""}
    return {"queue": "broker-a:3", "offset": 42, "stored_at": T, "groups": [row, {"group": "b", "state": "acked"}]}


def _stats() -> dict[str, Any]:
    queues = [{**STAT_QUEUE, "last_visible_at": T}, {**STAT_QUEUE, "last_visible_at": None}]
    return {"topic": "orders", "messages": 7, "scheduled": 1, "in": FLOW, "out": FLOW, "groups": [], "queues": queues}


def _lag() -> dict[str, Any]:
    return {"lag": 7, "lag_ms": 7_200_000, "dead_letters": 0, "topics": [{"topic": "orders", "queues": [LAG_QUEUE]}]}


def _members() -> dict[str, Any]:
    conflict = {"topic": "orders", "filters": [{"filter": "*", "members": ["m-1"], "count": 1}]}
    return {"members": [MEMBER], "generation": 3, "subscription_conflict": [conflict]}


def _assignments() -> dict[str, Any]:
    found = {"assignments": {"m-1": ["broker-a:0", "broker-a:1"]}, "strategies": ["average"], "unassigned": []}
    return {**found, "strategy": "average", "generation": 3}


def _locks() -> dict[str, Any]:
    return {"locks": {"broker-a:0": {"member": "m-1", "epoch": 3, "expires_in_ms": 20_000}}}


def _seek() -> dict[str, Any]:
    return {"queue": "broker-a:0", "before": None, "after": 7}


def answer(asked: Asked) -> Reply | None:
    """What is answered to *asked*; None for what nobody has thought of."""
    path = asked.path.partition("?")[0]
    if path == "/v1/routes":
        # The brokers that it names are where it is itself.
        nodes = {"broker-a-0": {"link": "127.0.0.1:1", "http": asked.headers["host"]}}
        return said({"broker_groups": {"broker-a": {"leader": "broker-a-0", "term": 3, "nodes": nodes}}})
    for method, pattern, made in _ANSWERS:
        if re.fullmatch(method, asked.method) and re.fullmatch(pattern, path):
            return made()
    return None
