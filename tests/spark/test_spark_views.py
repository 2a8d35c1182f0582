"""The views against a real mesh: each row as the HTTP API tells it. No Java."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark import read_options
from tern_spark.views.reader import ViewReader
from tern_spark.views.tables import VIEWS
from tests.support.mesh.mesh import Mesh, running_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A topic with a dead letter, a scheduled message and an open transaction; a group that has begun."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        running.create("shop", "billing", queues=2)
        running.create("other", queues=1)

        def post(path: str, expected: int, **options: Any) -> Any:
            answer = running.settled("POST", path, **options)
            assert answer.status_code == expected, answer.text
            return answer.json()

        post("/v1/topics/shop/messages", 201, content=b"bad", headers={"MQ-Tag": "paid"})
        found = post("/v1/topics/shop/groups/billing/receive", 200, json={"wait": "5s"})["messages"][0]
        entry = {"receipt_handle": found["receipt_handle"], "action": "dead_letter", "reason": "no such order"}
        post("/v1/topics/shop/groups/billing/settle", 200, json={"entries": [entry]})
        post("/v1/topics/shop/messages?delay=1h", 201, content=b"later")
        assert running.settled("PUT", "/v1/producer-groups/tills", json={"check_after": "10m"}).status_code == 201
        headers = {"MQ-Producer-Group": "tills", "Idempotency-Key": "one"}
        post("/v1/topics/shop/transactions", 201, content=b"half", headers=headers)
        post("/v1/topics/other/messages", 201, content=b"elsewhere")
        yield running


def rows_of(mesh: Mesh, view: str, **options: str) -> list[dict[str, Any]]:
    """All rows of *view*, which has the schema that it promises."""
    given = read_options({"endpoint": mesh.endpoint, "view": view, **options})
    reader = ViewReader(given, tuple(VIEWS[view].columns))
    (part,) = reader.partitions()
    batches = list(reader.read(part))
    assert all([(each.name, each.type) for each in batch.schema] == types_of(view) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def types_of(view: str) -> list[tuple[str, Any]]:
    """Names and Arrow's types of the columns."""
    return [(name, kind) for name, (_, kind) in VIEWS[view].columns.items()]


def test_queues_and_topics(mesh: Mesh) -> None:
    """All of them, or those of the topics that are named."""
    queues = rows_of(mesh, "queues", subscribe="shop")
    assert [(row["broker"], row["queue_id"]) for row in queues] == [("broker-a", 0), ("broker-a", 1)]
    assert sum(row["messages"] for row in queues) == 1
    assert {row["topic"] for row in rows_of(mesh, "queues")} >= {"shop", "other"}
    (topic,) = rows_of(mesh, "topics", subscribePattern="sho.")
    assert (topic["topic"], topic["queues"], topic["broker_groups"]) == ("shop", 2, ["broker-a"])


def test_groups_and_their_lag(mesh: Mesh) -> None:
    """The group has settled its one message."""
    (group,) = rows_of(mesh, "groups", group="billing")
    assert (group["group"], group["consume"]) == ("billing", True)
    assert "billing" in [row["group"] for row in rows_of(mesh, "groups")]
    lag = rows_of(mesh, "lag", group="billing")
    assert {(row["group"], row["topic"]) for row in lag} == {("billing", "shop")}
    assert sum(row["lag"] for row in lag) == 0
    assert rows_of(mesh, "lag", group="billing", subscribe="other") == []


def test_dead_letters_scheduled_messages_and_transactions(mesh: Mesh) -> None:
    """One of each."""
    (letter,) = rows_of(mesh, "dlq")
    told = (letter["group"], letter["topic"], letter["cause"], letter["reason"], letter["tag"], letter["body"])
    assert told == ("billing", "shop", "rejected", "no such order", "paid", b"bad")
    (later,) = rows_of(mesh, "scheduled", subscribe="shop")
    assert (later["deliver_at"] - later["born_at"]).total_seconds() == pytest.approx(3_600, abs=60)
    (half,) = rows_of(mesh, "transactions")
    assert (half["producer_group"], half["state"], half["messages"]) == ("tills", "open", 1)
