"""Keys of sends: each message is stored once, whoever repeats it, at whichever proxy, after another leader and in a topic that has grown."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx

from tests.support.mesh.mesh import Mesh, eventually

RECEIPT = ("message_id", "queue", "offset")


def send(mesh: Mesh, topic: str, messages: list[dict[str, Any]], proxy: int = 0) -> list[dict[str, Any]]:
    """The results of a batch, all of them receipts."""
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": messages}, proxy=proxy)
    assert answer.json()["failed"] == 0, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def receipts(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a repeat must tell again."""
    return [tuple(result[name] for name in RECEIPT) for result in results]


def stored(mesh: Mesh, topic: str) -> int:
    """Messages in all queues."""
    queues = mesh.patient("GET", f"/v1/topics/{topic}/offsets").json()["queues"]
    return sum(int(queue["max_offset"]) for queue in queues)


def change_leader(mesh: Mesh) -> None:
    """Leadership is handed over, unless the leader has just died: then another one leads as well."""
    before = mesh.leader(within_s=30)

    def is_another() -> bool:
        with suppress(httpx.TransportError):
            # Refused while nobody has the whole log: one that was killed is on its way.
            mesh.client.post(mesh.broker_http(before) + "/v1/broker/transfer", json={})
        return mesh.leader(within_s=30) != before

    eventually(is_another, within_s=30, what="another leader")


def test_a_repeat_gets_the_first_receipts_from_another_leader_and_in_a_topic_that_has_grown(mesh: Mesh) -> None:
    """The same keys at the other proxy, which knows more queues and asks another leader: nothing is stored again."""
    mesh.create("once", queues=2)
    messages = [{"body": f"{number}", "idempotency_key": f"once-{number}"} for number in range(50)]
    first = send(mesh, "once", messages)
    change_leader(mesh)
    assert receipts(send(mesh, "once", messages, proxy=1)) == receipts(first)
    assert mesh.patient("PUT", "/v1/topics/once", json={"queues": 7}).status_code == 200
    new = [{"body": f"{number}", "idempotency_key": f"once-{number}"} for number in range(50, 60)]
    mixed = send(mesh, "once", [*new, *messages[::-1]])
    assert receipts(mixed[10:]) == receipts(first)[::-1]
    assert {result.get("replayed") for result in mixed[10:]} == {True}
    assert stored(mesh, "once") == 60


def test_many_who_send_one_key_at_once_have_one_message(mesh: Mesh) -> None:
    """Sixteen senders at two proxies; all get the same receipt."""
    mesh.create("race", queues=8)
    path = "/v1/topics/race/messages?idempotency_key=race"

    def one(number: int) -> tuple[Any, ...]:
        answer = mesh.patient("POST", path, content=b"x", proxy=number % 2)
        assert answer.status_code in {200, 201}, answer.text
        return receipts([answer.json()])[0]

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(one, range(16)))) == 1
    assert stored(mesh, "race") == 1


def test_one_key_twice_in_a_batch_is_one_message_and_another_body_is_refused(mesh: Mesh) -> None:
    """422 for that message alone; keys are the topic's own."""
    mesh.create("reused", queues=1)
    mesh.create("reused-elsewhere", queues=1)
    first = {"body": "a", "idempotency_key": "k"}
    same = send(mesh, "reused", [first, first])
    assert receipts(same)[0] == receipts(same)[1]
    body = {"messages": [{"body": "b", "idempotency_key": "k"}, {"body": "c", "idempotency_key": "k2"}]}
    answer = mesh.patient("POST", "/v1/topics/reused/messages/batch", json=body)
    refused, taken = answer.json()["results"]
    assert (answer.status_code, refused["error"]["code"]) == (207, "idempotency-key-reused"), answer.text
    assert taken["offset"] == 1
    assert send(mesh, "reused-elsewhere", [{"body": "b", "idempotency_key": "k"}])[0]["offset"] == 0
    assert stored(mesh, "reused") == 2
