"""Begins that are refused: each by name, with its place, and nothing of them stored."""

import asyncio
from typing import Any

import orjson
import pytest

from tern_broker.core.sending import preparing
from tern_proxy.auto_create import AutoCreate
from tern_wire.limits import TRANSACTION_MESSAGES_MAX
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON
from tests.support.broker.contents import open_transactions
from tests.support.proxy.proxy_mesh import proxy_mesh
from tests.support.proxy.transaction_requests import BEGIN, SEVERAL, begin, begin_several, code_of, declare

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("", {}, 400, "invalid-field"),
        ("", {"MQ-Producer-Group": "no spaces"}, 400, "illegal-group"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Check-After": "soon"}, 400, "invalid-field"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Check-After": "99ms"}, 400, "invalid-field"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Check-After": "61m"}, 400, "invalid-field"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Delay": "1s"}, 400, "property-conflicts-with-type"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Delay-Level": "1"}, 400, "property-conflicts-with-type"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Message-Group": "g"}, 400, "property-conflicts-with-type"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Properties": '{"PGROUP": "x"}'}, 400, "illegal-property"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Properties": '{"TRAN_MSG": "x"}'}, 400, "illegal-property"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Reply-To": "x"}, 400, "unknown-field"),
        ("", {"MQ-Producer-Group": "shop", "Idempotency-Key": ""}, 400, "illegal-idempotency-key"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Queue": "broker-a:99"}, 404, "queue-not-found"),
        ("", {"MQ-Producer-Group": "shop", "MQ-Tag": "a|b"}, 400, "illegal-tag"),
        ("?producer_group=shop&producer_group=shop", {}, 400, "invalid-field"),
        ("?producer_group=shop&group=x", {}, 400, "unknown-parameter"),
        ("?producer_group=none", {}, 404, "producer-group-not-found"),
    ],
)
async def test_bad_begins_are_problems(query: str, headers: dict[str, str], status: int, code: str) -> None:
    """Nothing is stored."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        answer = await mesh.http.post(BEGIN + query, content=b"x", headers=headers)
        assert code_of(answer) == (status, code), answer.text
        assert open_transactions(mesh.broker) == {}


@pytest.mark.parametrize(
    ("document", "status", "code", "pointer"),
    [
        ({}, 400, "invalid-field", None),
        ([], 400, "invalid-field", None),
        ({"producer_group": "shop", "messages": []}, 400, "batch-empty", None),
        ({"producer_group": "shop", "messages": "x"}, 400, "invalid-field", "/messages"),
        ({"producer_group": 7, "messages": [{"topic": "orders", "body": "x"}]}, 400, "invalid-field", "/producer_group"),
        ({"producer_group": "", "messages": [{"topic": "orders", "body": "x"}]}, 400, "invalid-field", "/producer_group"),
        ({"producer_group": "a b", "messages": [{"topic": "orders", "body": "x"}]}, 400, "illegal-group", None),
        ({"producer_group": "shop", "messages": [{"body": "x"}]}, 400, "invalid-field", "/messages/0"),
        ({"producer_group": "shop", "messages": [{"topic": "none", "body": "x"}]}, 404, "topic-not-found", None),
        ({"producer_group": "shop", "messages": [{"topic": "a.b", "body": "x"}]}, 400, "illegal-topic", None),
        ({"producer_group": "shop", "messages": [{"topic": "orders"}]}, 400, "invalid-field", "/messages/0"),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}, {"topic": "orders", "body": "x", "tag": "|"}]},
            400,
            "illegal-tag",
            "/messages/1/tag",
        ),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x", "delay": "1s"}]},
            400,
            "property-conflicts-with-type",
            "/messages/0/delay",
        ),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x", "message_group": "g"}]},
            400,
            "property-conflicts-with-type",
            "/messages/0/message_group",
        ),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}, {"topic": "orders", "body": "x", "idempotency_key": "k"}]},
            400,
            "invalid-field",
            "/messages/1/idempotency_key",
        ),
        ({"producer_group": "shop", "messages": [{"topic": "orders", "body": "x", "delya": 1}]}, 400, "unknown-field", None),
        ({"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}], "timeout": 1}, 400, "unknown-field", None),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}], "check_after": "0s"},
            400,
            "invalid-field",
            "/check_after",
        ),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}] * (TRANSACTION_MESSAGES_MAX + 1)},
            413,
            "batch-too-large",
            None,
        ),
        (
            {"producer_group": "shop", "messages": [{"topic": "orders", "body": "x" * (1 << 21)}] * 3},
            413,
            "batch-too-large",
            None,
        ),
        ({"producer_group": "shop", "messages": [{"topic": "orders", "body": "x" * (5 << 20)}]}, 413, "message-too-large", None),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
async def test_bad_documents_are_problems(document: Any, status: int, code: str, pointer: str | None) -> None:
    """With the place where it is wrong; nothing is stored, whole or in part."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        answer = await mesh.post(SEVERAL, orjson.dumps(document), content_type=JSON)
        assert code_of(answer) == (status, code), answer.text
        if pointer is not None:
            assert answer.json()["pointer"] == pointer
        assert open_transactions(mesh.broker) == {}


async def test_a_document_of_another_type_is_refused() -> None:
    """415, and a header key that contradicts the message's is 400; an empty one too."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        assert code_of(await mesh.post(SEVERAL, b"{}", content_type="text/csv")) == (415, "unsupported-batch-format")
        message = {"topic": "orders", "body": "x", "idempotency_key": "one"}
        apart = await begin_several(mesh, message, headers={"Idempotency-Key": "two"})
        assert (apart.json()["code"], apart.json()["pointer"]) == ("invalid-field", "/messages/0/idempotency_key")
        empty = await begin_several(mesh, message, headers={"Idempotency-Key": ""})
        assert code_of(empty) == (400, "illegal-idempotency-key")
        assert code_of(await mesh.http.post(f"{SEVERAL}?x=1", json={})) == (400, "unknown-parameter")


async def test_a_producer_group_with_too_many_open_transactions_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """429, retryable; nothing is stored."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        monkeypatch.setattr(preparing, "OPEN_PER_PRODUCER_GROUP_MAX", 1)
        assert (await begin(mesh)).status_code == 201
        refused = await begin(mesh)
        assert (*code_of(refused), refused.json()["retryable"]) == (429, "too-many-open-transactions", True)


async def test_with_leave_a_producer_group_is_made_at_its_first_transaction() -> None:
    """Once, for many begins at a time, and none of them is stored twice; without leave it is 404."""
    async with proxy_mesh(auto_create=AutoCreate(groups=True)) as mesh:
        answers = await asyncio.gather(*(begin(mesh) for _ in range(8)))
        assert {answer.status_code for answer in answers} == {201}
        assert mesh.broker.asked[RequestCode.ALTER_PRODUCER_GROUP] == 1
        assert len(open_transactions(mesh.broker)) == 8
        several = await begin_several(mesh, {"topic": "orders", "body": "x"}, producer_group="another")
        assert several.status_code == 201
    async with proxy_mesh() as mesh:
        refused = await begin(mesh)
        assert code_of(refused) == (404, "producer-group-not-found")
        assert "PUT /v1/producer-groups/shop" in refused.json()["detail"]
