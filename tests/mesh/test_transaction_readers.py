"""Readers that wait: a half message is nothing to them before its commit, and there once afterwards."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.mesh.test_transactions import ask, begin, declare, end
from tests.support.mesh.mesh import Mesh, eventually


def waits(mesh: Mesh, method: str, path: str, **options: Any) -> list[dict[str, Any]]:
    """Messages of a long poll, asked again until there are some."""

    def some() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(mesh, method, path, **options).json()["messages"]
        return found

    return list(eventually(some, within_s=40, what=path))


def test_readers_that_wait_are_served_by_the_commit_and_not_by_the_begin(mesh: Mesh) -> None:
    """A parked receive and a parked pull of each queue: nobody has anything while a transaction is open, or after a rollback."""
    declare(mesh, "tx-waiting")
    topic = "/v1/topics/tx-waiting"
    queues = [queue["queue"] for queue in mesh.settled("GET", f"{topic}/offsets").json()["queues"]]
    with ThreadPoolExecutor(3) as pool:
        receive = pool.submit(waits, mesh, "POST", f"{topic}/groups/tx-waiting/receive", json={"wait": "5s"})
        pulls: list[Future[list[dict[str, Any]]]] = [
            pool.submit(waits, mesh, "GET", f"{topic}/queues/{queue}/messages?offset=0&wait=5s") for queue in queues
        ]
        gone = begin(mesh, "tx-waiting", b"never")
        begun = begin(mesh, "tx-waiting", b"paid")
        assert end(mesh, gone["transaction_id"], "rollback").status_code == 200
        listed = mesh.settled("GET", f"{topic}/offsets").json()["queues"]
        assert [queue["max_offset"] for queue in listed] == [0, 0]
        assert not any(waiting.done() for waiting in (receive, *pulls))
        assert end(mesh, begun["transaction_id"], "commit").status_code == 200
        where = queues.index(end(mesh, begun["transaction_id"], "commit").json()["queue"])
        assert [message["message_id"] for message in receive.result()] == [begun["message_id"]]
        assert [message["message_id"] for message in pulls[where].result()] == [begun["message_id"]]
        # So that the other one has an end, too: one transaction for every queue.
        messages = [{"topic": "tx-waiting", "body": "last", "queue": queue} for queue in queues]
        last = ask(mesh, "POST", "/v1/transactions", json={"producer_group": "tx-waiting", "messages": messages})
        assert end(mesh, last.json()["transaction_id"], "commit").status_code == 200
        assert [message["body"] for message in pulls[1 - where].result()] == ["last"]
