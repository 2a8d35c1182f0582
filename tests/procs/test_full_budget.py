"""A mesh whose budget is full: what a group has not read stays, sends are refused and say for whom, and go on when it has read."""

from pathlib import Path

from tests.support.mesh.mesh import Mesh, eventually, running_mesh

# The emergency segment and the segments that are prepared are in it; so some 60 MiB of messages fit.
BUDGET_BYTES, BODY_SIZE_BYTES, BATCH = 176 << 20, 250_000, 16


def fill(mesh: Mesh, topic: str) -> tuple[int, dict[str, object]]:
    """Send batches to *topic* until one is refused for want of room: how many messages were acknowledged, and the refusal."""
    stored = 0
    for _ in range(200):
        messages = [{"body": "x" * BODY_SIZE_BYTES} for _ in range(BATCH)]
        answer = mesh.call("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": messages}, timeout=30)
        if answer.status_code == 503 and answer.json()["code"] == "disk-full":
            return stored, answer.json()
        assert answer.status_code in {200, 207}, answer.text
        results = answer.json()["results"]
        stored += sum("offset" in result for result in results)
        for result in results:
            if result.get("error", {}).get("code") == "disk-full":
                return stored, result["error"]
    raise AssertionError("the budget is never full")


def take(mesh: Mesh, topic: str, group: str) -> int:
    """Receive what is there at once, and ack it."""
    path = f"/v1/topics/{topic}/groups/{group}"
    answer = mesh.settled("POST", f"{path}/receive", json={"max_messages": 16, "max_bytes": 4 << 20, "wait": "1s"})
    messages = answer.json().get("messages", []) if answer.status_code == 200 else []
    if messages:
        handles = [message["receipt_handle"] for message in messages]
        assert mesh.settled("POST", f"{path}/ack", json={"receipt_handles": handles}).json()["failed"] == 0
    return len(messages)


def test_a_full_budget_refuses_sends_and_loses_nothing(tmp_path: Path) -> None:
    """Every message that was acknowledged is there for the group that is behind; who is refused hears its name; reading makes room."""
    options = ("--brokers", "1", "--disk-budget", str(BUDGET_BYTES))
    with running_mesh(tmp_path, *options) as mesh:
        mesh.create("orders", group="billing", queues=1)
        mesh.settled("POST", "/v1/topics/orders/messages", content=b"the first")
        assert take(mesh, "orders", "billing") == 1
        stored, _ = fill(mesh, "orders")
        refused = eventually(
            lambda: held if "billing" in (held := fill(mesh, "orders")[1])["detail"] else None,  # type: ignore[operator]
            within_s=40,
            what="who is refused hears who holds the space",
        )
        assert refused["retryable"] is True
        assert "ternmq topic alter orders --when-full drop-oldest" in str(refused["detail"])
        told = mesh.broker("broker-a-0")
        assert (told["refuses_sends"], told["space_held"]["group"], told["dropped_unread"]) == (True, "billing", [])
        assert "group billing has not read" in " ".join(mesh.run("status").stdout.split())
        (queue,) = mesh.settled("GET", "/v1/topics/orders/offsets").json()["queues"]
        assert queue["min_offset"] <= 1
        left = queue["max_offset"] - 1
        assert left >= stored > 100
        while left:
            left -= (taken := take(mesh, "orders", "billing"))
            assert taken, f"{left} acknowledged messages are gone"
        again = mesh.settled("POST", "/v1/topics/orders/messages", content=b"again", within_s=30)
        assert again.status_code == 201
        # Now the topic's owner would rather lose the oldest.
        assert (
            mesh.settled("PATCH", "/v1/topics/orders", json={"when_full": "drop-oldest"}).json()["when_full"]
            == "drop-oldest"
        )
        dropped = eventually(
            lambda: fill(mesh, "orders") and mesh.broker("broker-a-0").get("dropped_unread"),
            within_s=60,
            what="the oldest messages go, and are counted",
        )
        assert dropped[0]["topic"] == "orders"
        metrics = mesh.client.get(mesh.broker_http("broker-a-0") + "/metrics").text
        assert 'ternmq_broker_dropped_unread_messages_total{topic="orders"}' in metrics
