"""One request for every route of the proxy, for the principal that owns topic orders, group billing and producer group shop.

`sample` makes it of the table of requirements; a route that is new to the table needs an entry here, or a test says so.
"""

from dataclasses import dataclass, field
from typing import Any

from tern_proxy.core.access.requirements import Rule

NAMES = {
    "topic": "orders",
    "group": "billing",
    "producer_group": "shop",
    "queue": "broker-a:0",
    "broker_group": "broker-a",
    "message_id": "7F3A9C01D2E4B5A6978800000000002A",
    "correlation_id": "invoice-7",
    "member": "worker-1",
    "task": "5b1f0c9a7e2d4c3b8a190f6e",
    "principal": "somebody",
    "problem": "internal",
    "asset": "swagger-ui.css",
    "kid": "A" * 16,
    "recall_handle": "AQAB",
    "lease": "c41d7be09a5f2e3806b7d914.broker-a",
    "transaction_id": "AQAB",
    "query": "daily-delays",
    "batch": "0",
    "partition": "3",
    "attempt": "17",
    "chunk": "0",
}
_MORE: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/topics/{topic}/messages"): {"content": b"x"},
    ("POST", "/v1/topics/{topic}/messages/batch"): {"json": {"messages": [{"body": "x"}]}},
    ("GET", "/v1/topics/{topic}/messages"): {"params": {"key": "k"}},
    ("GET", "/v1/topics/{topic}/tail"): {"params": {"idle": "0s"}},
    ("POST", "/v1/topics/{topic}/groups/{group}/ack"): {"json": {"receipt_handles": []}},
    ("POST", "/v1/topics/{topic}/groups/{group}/settle"): {"json": {"entries": []}},
    ("GET", "/v1/messages/{message_id}/trace"): {"params": {"topic": "orders"}},
    ("POST", "/v1/topics/{topic}/requests"): {"content": b"x", "params": {"timeout": "1ms"}},
    ("POST", "/v1/topics/{topic}/replies"): {"content": b"x"},
    ("POST", "/v1/topics/{topic}/transactions"): {"content": b"x", "params": {"producer_group": "shop"}},
    ("POST", "/v1/transactions"): {
        "json": {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}]},
    },
    ("POST", "/v1/transactions/{transaction_id}/resolve"): {"json": {"outcome": "commit", "reason": "told so"}},
    ("PUT", "/v1/topics/{topic}"): {"json": {"queues": 4}},
    ("PATCH", "/v1/topics/{topic}"): {"json": {"queues": 4}},
    ("PUT", "/v1/topics/{topic}/placement"): {"json": {"broker_groups": ["broker-a"]}},
    ("DELETE", "/v1/topics/{topic}"): {"params": {"confirm": "orders"}},
    ("PUT", "/v1/groups/{group}"): {"json": {"max_attempts": 3}},
    ("PATCH", "/v1/groups/{group}"): {"json": {"max_attempts": 3}},
    ("DELETE", "/v1/groups/{group}"): {"params": {"confirm": "billing"}},
    ("PUT", "/v1/producer-groups/{producer_group}"): {"json": {"max_checks": 3}},
    ("GET", "/v1/groups/{group}/lag"): {"params": {"topic": "orders"}},
    ("GET", "/v1/groups/{group}/offsets"): {"params": {"topic": "orders"}},
    ("PUT", "/v1/groups/{group}/offsets"): {"json": {"topic": "orders", "offsets": {"broker-a:0": 0}}},
    ("POST", "/v1/groups/{group}/seek"): {"json": {"topic": "orders", "to": "earliest"}},
    ("POST", "/v1/groups/{group}/members/heartbeat"): {
        "json": {"member": "worker-1", "subscriptions": {"orders": "*"}}
    },
    ("GET", "/v1/groups/{group}/assignments"): {"params": {"topic": "orders"}},
    ("GET", "/v1/groups/{group}/locks"): {"params": {"topic": "orders"}},
    ("POST", "/v1/groups/{group}/locks"): {"json": {"topic": "orders", "member": "worker-1", "queues": ["broker-a:0"]}},
    ("DELETE", "/v1/groups/{group}/locks"): {"params": {"topic": "orders", "member": "worker-1"}},
    ("DELETE", "/v1/groups/{group}/dlq"): {"params": {"confirm": "billing"}},
    ("POST", "/v1/groups/{group}/dlq/redrive"): {"json": {"topic": "orders"}},
    ("PUT", "/v1/principals/{principal}"): {"json": {}},
    ("POST", "/v1/principals/{principal}/keys"): {"json": {}},
    ("POST", "/v1/reads/plan"): {"json": {"topics": [{"topic": "orders"}], "sizes": True}},
    ("POST", "/v1/read-leases"): {"json": {"topics": [{"topic": "orders"}]}},
    ("PUT", "/v1/read-leases/{lease}"): {"json": {}},
    ("PUT", "/v1/topics/{topic}/staged/{query}/{batch}/{partition}/{attempt}/{chunk}"): {
        "json": {"messages": [{"body": "x"}]}
    },
    ("POST", "/v1/publications/{query}/batches/{batch}"): {"json": {"topics": ["orders"]}},
    ("GET", "/v1/acls"): {"params": {"topic": "orders"}},
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Method and path of a request, and the rest as httpx takes it."""

    method: str
    path: str
    more: dict[str, Any] = field(default_factory=dict)


def sample(rule: Rule, **names: str) -> Sample:
    """A request to the route of *rule*; *names* in place of some of the usual ones."""
    known = NAMES | names
    path = "/".join(known[part[1:-1]] if part.startswith("{") else part for part in rule.path.split("/"))
    return Sample(rule.method, path, _MORE.get((rule.method, rule.path), {}))
