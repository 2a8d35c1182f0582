"""The errors of the API document: they exist, under these statuses, and what really goes wrong is among them."""

import re

import pytest

from tern_wire.errors import ERRORS
from tern_wire.paths import JSON, PROBLEM
from tests.support.proxy.api_document import DOCUMENT, OPERATIONS, codes
from tests.support.proxy.proxy_mesh import proxy_mesh

pytestmark = pytest.mark.anyio
SEND, GROUP, PULL = "/v1/topics/orders/messages", "/v1/topics/orders/groups/billing", "/v1/topics/orders/queues/broker"
BEGIN, SHOP = "/v1/topics/orders/transactions", "/v1/producer-groups/shop"
MOVED = '{"topic": "orders", "offsets": {"broker-a:3": 0}, "expected": {"broker-a:3": 7}}'


def test_every_documented_error_exists_under_its_status() -> None:
    """Codes are those of tern_wire.errors, and the enumeration beside the examples says the same."""
    for name, (_, _, operation) in OPERATIONS.items():
        for status, code in codes(name):
            assert ERRORS[code].status == status, f"{name}: {code}"
            schema = operation["responses"][str(status)]["content"][PROBLEM]["schema"]
            assert code in schema["properties"]["code"]["enum"]
    for example in DOCUMENT["components"]["examples"].values():
        assert "{" not in example["value"]["detail"], "a field of this error has no sample value"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/topics/none/messages", "x", "topic-not-found"),
        ("POST", "/v1/topics/a.b/messages", "x", "illegal-topic"),
        ("POST", f"{SEND}?tag=a|b", "x", "illegal-tag"),
        ("POST", f"{SEND}?queue=broker-a:99", "x", "queue-not-found"),
        ("POST", f"{SEND}?key=a%20b", "x", "illegal-key"),
        ("POST", f"{SEND}/batch", '{"messages": []}', "batch-empty"),
        ("POST", f"{SEND}/batch", '{"messages": [{"body": "x", "tag": "|"}]}', "illegal-tag"),
        ("POST", f"{SEND}/batch", '{"messages": [{"delya": 1}]}', "unknown-field"),
        ("POST", f"{SEND}?delay=41d", "x", "illegal-delivery-time"),
        ("POST", f"{SEND}?message_group=g&queue=broker-a:1", "x", "property-conflicts-with-type"),
        ("POST", f"{SEND}?message_group={'g' * 64}", "x", "illegal-message-group"),
        ("POST", BEGIN, "x", "invalid-field"),
        ("POST", f"{BEGIN}?producer_group=a.b", "x", "illegal-group"),
        ("POST", f"{BEGIN}?producer_group=shop", "x", "producer-group-not-found"),
        ("POST", f"{BEGIN}?producer_group=shop&delay=1s", "x", "property-conflicts-with-type"),
        ("POST", "/v1/transactions", '{"producer_group": "shop", "messages": []}', "batch-empty"),
        ("POST", "/v1/transactions/AQAB/commit", "", "transaction-id-invalid"),
        ("POST", "/v1/transactions/AQAB/rollback", "{", "transaction-id-invalid"),
        ("POST", "/v1/transactions/AQAB/resolve", "{}", "invalid-field"),
        ("GET", "/v1/transactions/AQAB", "", "transaction-id-invalid"),
        ("GET", "/v1/transactions?state=committed", "", "invalid-field"),
        ("PUT", SHOP, '{"check_url": "http://127.0.0.1/"}', "check-url-forbidden"),
        ("GET", SHOP, "", "producer-group-not-found"),
        ("DELETE", SHOP, "", "producer-group-not-found"),
        ("POST", f"{SHOP}/checks/receive", "", "producer-group-not-found"),
        ("POST", f"{SHOP}/checks/receive?wait=31s", "", "illegal-wait"),
        ("DELETE", "/v1/topics/orders/scheduled/AQAB", "", "recall-handle-invalid"),
        ("POST", "/v1/topics/orders/groups/none/receive", "", "group-not-found"),
        ("POST", f"{GROUP}/receive?wait=31s", "", "illegal-wait"),
        ("POST", f"{GROUP}/receive?invisible=1ms", "", "illegal-invisible-time"),
        ("POST", f"{GROUP}/ack", '{"receipt_handles": ["x"]}', "receipt-invalid"),
        ("POST", f"{GROUP}/ack", "{", "malformed-body"),
        ("POST", f"{GROUP}/settle", '{"entries": []}', "invalid-field"),
        ("GET", f"{PULL}-a:99/messages", "", "queue-not-found"),
        ("GET", f"{PULL}-a:3/messages?wait=31s", "", "illegal-wait"),
        ("PUT", "/v1/topics/a.b", "", "illegal-topic"),
        ("PUT", "/v1/topics/orders", '{"queues": 0}', "invalid-field"),
        ("PUT", "/v1/groups/billing", '{"invisible": "13h"}', "illegal-invisible-time"),
        ("GET", "/v1/groups/none/offsets?topic=orders", "", "group-not-found"),
        ("GET", "/v1/groups/billing/offsets", "", "invalid-field"),
        ("PUT", "/v1/groups/billing/offsets", MOVED, "offset-moved"),
    ],
)
async def test_what_goes_wrong_is_documented(method: str, path: str, body: str, code: str) -> None:
    """The problem that comes is among those of its operation."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.request(method, path, content=body.encode(), headers={"content-type": JSON})
        assert answer.json()["code"] == code
        (name,) = [
            name
            for name, (known, template, _) in OPERATIONS.items()
            if known == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path.partition("?")[0])
        ]
        assert (answer.status_code, code) in codes(name)
