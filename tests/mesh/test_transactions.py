"""Transactions through real processes: invisible until the commit, never visible after a rollback, ended once, asked about, resolved by hand."""

import itertools
from typing import Any

import httpx

from tern_wire.paths import RECORDS
from tern_wire.records.read import decode_record
from tests.mesh.test_groups import receive
from tests.support.mesh.mesh import Mesh, eventually

SEVERAL = "/v1/transactions"


def ask(mesh: Mesh, method: str, path: str, **options: Any) -> httpx.Response:
    """As settled, repeated also while the outcome is unknown: what is asked here may be done twice."""

    def attempt() -> httpx.Response | None:
        answer = mesh.settled(method, path, **options)
        return None if answer.status_code == 504 else answer

    found: httpx.Response = eventually(attempt, within_s=20, what=f"{method} {path} answered")
    return found


def declare(mesh: Mesh, name: str, *, topics: int = 1, **settings: Any) -> None:
    """Topics NAME, NAME-1, ... for half messages, a consumer group NAME, and a producer group NAME."""
    for number in range(topics):
        topic = f"{name}-{number}" if number else name
        declared = {"queues": 2, "type": "TRANSACTION"}
        assert mesh.settled("PUT", f"/v1/topics/{topic}", json=declared).status_code in {200, 201}
    assert mesh.settled("PUT", f"/v1/groups/{name}", json={}).status_code in {200, 201}
    answer = mesh.settled("PUT", f"/v1/producer-groups/{name}", json={"check_after": "10m", **settings})
    assert answer.status_code in {200, 201}, answer.text


_keys = itertools.count()


def begin(mesh: Mesh, name: str, body: bytes, *, key: str = "", **headers: str) -> dict[str, Any]:
    """A transaction of one message, which is not there twice however often it is asked for."""
    fields = {"MQ-Producer-Group": name, "Idempotency-Key": key or f"{name}-{next(_keys)}", **headers}
    answer = ask(mesh, "POST", f"/v1/topics/{name}/transactions", content=body, headers=fields)
    assert answer.status_code in {200, 201}, answer.text
    found: dict[str, Any] = answer.json()
    return found


def end(mesh: Mesh, transaction_id: str, verb: str, *, proxy: int = 0, **fields: Any) -> httpx.Response:
    """Commit, roll back, resolve."""
    return ask(mesh, "POST", f"{SEVERAL}/{transaction_id}/{verb}", json=fields, proxy=proxy)


def received(mesh: Mesh, topic: str, group: str) -> list[str]:
    """Bodies of what a receive gives at once; they are acked."""
    path = f"/v1/topics/{topic}/groups/{group}"
    messages = receive(mesh, topic, group, max_messages=100)
    handles = [message["receipt_handle"] for message in messages]
    if handles:
        ask(mesh, "POST", f"{path}/ack", json={"receipt_handles": handles})
    return [str(message.get("body")) for message in messages]


def visible(mesh: Mesh, topic: str, *, key: str, message_id: str) -> dict[str, Any]:
    """All that any way of reading shows of a topic: by offset, as records, by key, by id, traced, counted."""
    queues = mesh.settled("GET", f"/v1/topics/{topic}/offsets").json()["queues"]
    pulled: list[str] = []
    records: list[bytes] = []
    for queue in queues:
        path = f"/v1/topics/{topic}/queues/{queue['queue']}/messages?offset=earliest"
        pulled += [message["body"] for message in mesh.settled("GET", path).json()["messages"]]
        raw = mesh.settled("GET", path, headers={"Accept": RECORDS}).content
        records += [decode_record(raw).body] if raw else []
    by_key = mesh.settled("GET", f"/v1/topics/{topic}/messages?key={key}").json()["messages"]
    return {
        "count": sum(queue["max_offset"] for queue in queues),
        "pulled": pulled,
        "records": records,
        "by key": [message["message_id"] for message in by_key],
        "by id": mesh.settled("GET", f"/v1/topics/{topic}/messages/{message_id}").status_code,
        "trace": mesh.settled("GET", f"/v1/messages/{message_id}/trace?topic={topic}").status_code,
    }


NOTHING = {"count": 0, "pulled": [], "records": [], "by key": [], "by id": 404, "trace": 404}


def test_a_message_is_invisible_until_its_commit_and_there_once_afterwards(mesh: Mesh) -> None:
    """Begun at one proxy, committed at another; every way of reading agrees; the same end again is the same answer, another is 409."""
    declare(mesh, "tx-commit")
    begun = begin(mesh, "tx-commit", b"paid", **{"MQ-Key": "order-7", "MQ-Properties": '{"shop": "7"}'})
    of_message = {"key": "order-7", "message_id": begun["message_id"]}
    assert received(mesh, "tx-commit", "tx-commit") == []
    assert visible(mesh, "tx-commit", **of_message) == NOTHING
    shown = mesh.settled("GET", f"{SEVERAL}/{begun['transaction_id']}").json()
    assert (shown["state"], shown["producer_group"], shown["message_count"]) == ("open", "tx-commit", 1)
    committed = end(mesh, begun["transaction_id"], "commit", proxy=1)
    assert (committed.status_code, committed.json()["state"], committed.json()["topic"]) == (
        *(200, "committed", "tx-commit"),
    )
    assert end(mesh, begun["transaction_id"], "commit").json() == committed.json()
    other = end(mesh, begun["transaction_id"], "rollback")
    assert (other.status_code, other.json()["code"], other.json()["state"]) == (
        *(409, "transaction-resolved", "committed"),
    )
    path = f"/v1/topics/tx-commit/queues/{committed.json()['queue']}/messages?offset={committed.json()['offset']}"
    (message,) = mesh.settled("GET", path).json()["messages"]
    assert (message["message_id"], message["properties"]) == (begun["message_id"], {"shop": "7"})
    assert visible(mesh, "tx-commit", **of_message) == {
        "count": 1,
        "pulled": ["paid"],
        "records": [b"paid"],
        "by key": [begun["message_id"]],
        "by id": 200,
        "trace": 200,
    }
    eventually(lambda: "paid" in received(mesh, "tx-commit", "tx-commit"), within_s=20, what="the message")


def test_what_is_rolled_back_is_never_visible(mesh: Mesh) -> None:
    """In no way of reading, then or after the next commit in its queues; commit is 409 then."""
    declare(mesh, "tx-rollback")
    begun = begin(mesh, "tx-rollback", b"never", **{"MQ-Key": "order-8"})
    assert end(mesh, begun["transaction_id"], "rollback").json()["state"] == "rolled-back"
    assert received(mesh, "tx-rollback", "tx-rollback") == []
    assert visible(mesh, "tx-rollback", key="order-8", message_id=begun["message_id"]) == NOTHING
    refused = end(mesh, begun["transaction_id"], "commit")
    assert (refused.status_code, refused.json()["state"]) == (409, "rolled-back")
    for number in range(4):
        assert end(mesh, begin(mesh, "tx-rollback", b"%d" % number)["transaction_id"], "commit").status_code == 200
    found = visible(mesh, "tx-rollback", key="order-8", message_id=begun["message_id"])
    assert (sorted(found["pulled"]), found["by key"], found["by id"]) == (["0", "1", "2", "3"], [], 404)


def test_several_messages_of_several_topics_become_visible_together(mesh: Mesh) -> None:
    """None before the commit, all after it; an ordinary send to such a topic is refused; a repeat is the same transaction."""
    declare(mesh, "tx-several", topics=3)
    messages = [
        {"topic": "tx-several" + suffix, "body": f"{number}", "keys": ["order-9"]}
        for number, suffix in enumerate(("", "-1", "-2", "", "-1"))
    ]
    document = {"producer_group": "tx-several", "messages": messages}
    headers = {"Idempotency-Key": "tx-several"}
    begun = ask(mesh, "POST", SEVERAL, json=document, headers=headers).json()
    again = ask(mesh, "POST", SEVERAL, json=document, headers=headers)
    assert (again.status_code, again.json()["transaction_id"]) == (200, begun["transaction_id"])
    topics = ("tx-several", "tx-several-1", "tx-several-2")
    assert [received(mesh, topic, "tx-several") for topic in topics] == [[], [], []]
    shown = mesh.settled("GET", f"{SEVERAL}/{begun['transaction_id']}").json()
    assert [message["topic"] for message in shown["messages"]] == [message["topic"] for message in messages]
    assert end(mesh, begun["transaction_id"], "commit").json()["messages"] == 5
    found = {
        topic: sorted(
            message["body"]
            for message in mesh.settled("GET", f"/v1/topics/{topic}/messages?key=order-9").json()["messages"]
        )
        for topic in topics
    }
    assert found == {"tx-several": ["0", "3"], "tx-several-1": ["1", "4"], "tx-several-2": ["2"]}
    plain = mesh.settled("POST", "/v1/topics/tx-several/messages", content=b"x")
    assert (plain.status_code, plain.json()["code"]) == (400, "property-conflicts-with-type")


def test_keys_make_one_transaction_of_many_attempts(mesh: Mesh) -> None:
    """At both proxies, before and after its end; another message under the key is 422."""
    declare(mesh, "tx-keys")
    begun = begin(mesh, "tx-keys", b"once", key="tx-keys")
    assert begin(mesh, "tx-keys", b"once", key="tx-keys")["transaction_id"] == begun["transaction_id"]
    headers = {"MQ-Producer-Group": "tx-keys", "Idempotency-Key": "tx-keys"}
    path = "/v1/topics/tx-keys/transactions"
    other = ask(mesh, "POST", path, content=b"other", headers=headers, proxy=1)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    assert end(mesh, begun["transaction_id"], "commit").status_code == 200
    again = ask(mesh, "POST", path, content=b"once", headers=headers, proxy=1)
    assert (again.status_code, again.json()["transaction_id"]) == (200, begun["transaction_id"])
    assert again.headers["Idempotency-Replayed"] == "true"
    queues = mesh.settled("GET", "/v1/topics/tx-keys/offsets").json()["queues"]
    assert sum(queue["max_offset"] for queue in queues) == 1


def test_open_transactions_are_listed_and_resolved_by_hand(mesh: Mesh) -> None:
    """In pages, of their producer group; what is resolved keeps its reason and is listed no more; a busy producer group stays."""
    declare(mesh, "tx-list")
    ids = [begin(mesh, "tx-list", b"%d" % number)["transaction_id"] for number in range(5)]
    listed: list[str] = []
    cursor = ""
    while True:
        path = f"{SEVERAL}?producer_group=tx-list&state=open&limit=2&cursor={cursor}"
        page = mesh.settled("GET", path).json()
        listed += [row["transaction_id"] for row in page["transactions"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert listed == ids
    assert mesh.settled("GET", f"{SEVERAL}?producer_group=tx-list&older_than=1h").json()["transactions"] == []
    busy = mesh.settled("DELETE", "/v1/producer-groups/tx-list")
    assert (busy.status_code, busy.json()["code"], busy.json()["open"]) == (409, "producer-group-busy", 5)
    for number, one in enumerate(ids):
        outcome = "commit" if number % 2 else "rollback"
        resolved = end(mesh, one, "resolve", outcome=outcome, reason=f"case {number}")
        assert (resolved.status_code, resolved.json()["by"]) == (200, "hand")
        shown = mesh.settled("GET", f"{SEVERAL}/{one}").json()
        assert (shown["reason"], shown["by"]) == (f"case {number}", "hand")
    assert mesh.settled("GET", f"{SEVERAL}?producer_group=tx-list").json()["transactions"] == []
    numbers = mesh.settled("GET", "/v1/producer-groups/tx-list").json()["stats"]
    assert (numbers["open"], numbers["committed"], numbers["rolled_back"]) == (0, 2, 3)
    assert ask(mesh, "DELETE", "/v1/producer-groups/tx-list").status_code in {204, 404}
    forged = end(mesh, ids[0][:-2] + ("AA" if ids[0][-2:] != "AA" else "BB"), "commit")
    assert (forged.status_code, forged.json()["code"]) == (400, "transaction-id-invalid")


def test_a_producer_is_asked_by_pull_and_answers(mesh: Mesh) -> None:
    """A parked poll gets the check when it is due, with the message; its commit is what consumers see."""
    declare(mesh, "tx-pull", check_after="300ms")
    path = "/v1/producer-groups/tx-pull/checks/receive"
    begun = begin(mesh, "tx-pull", b"asked about", **{"MQ-Tag": "T"})

    def asked() -> Any:
        return ask(mesh, "POST", path, json={"wait": "5s"}, proxy=1).json()["checks"]

    (check,) = eventually(asked, within_s=30, what="a check")
    assert (check["transaction_id"], check["producer_group"]) == (begun["transaction_id"], "tx-pull")
    assert check["attempt"] >= 1
    (message,) = check["messages"]
    assert (message["body"], message["tag"], message["message_id"]) == ("asked about", "T", begun["message_id"])
    assert check["answer_by"] > check["begun_at"]
    assert received(mesh, "tx-pull", "tx-pull") == []
    assert end(mesh, check["transaction_id"], "commit").json()["state"] == "committed"
    eventually(lambda: "asked about" in received(mesh, "tx-pull", "tx-pull"), within_s=20, what="the message")


def test_a_transaction_that_nobody_answers_for_expires_and_is_ended_by_hand_only(mesh: Mesh) -> None:
    """Its callback is refused as often as is asked: 410 for the client, listed as expired, resolved."""
    url = f"http://127.0.0.1:{mesh.port_base + 99}/checks"
    settings: dict[str, Any] = {"check_url": url, "max_checks": 2, "check_after": "100ms", "check_interval": "100ms"}
    declare(mesh, "tx-expired", **settings)
    begun = begin(mesh, "tx-expired", b"lost")["transaction_id"]
    listed = f"{SEVERAL}?producer_group=tx-expired&state=expired"
    eventually(lambda: mesh.settled("GET", listed).json()["transactions"], within_s=45, what="it expires")
    shown = mesh.settled("GET", f"{SEVERAL}/{begun}").json()
    assert (shown["state"], shown["attempts"], len(shown["checks"])) == ("expired", 2, 2)
    late = end(mesh, begun, "commit")
    assert (late.status_code, late.json()["code"]) == (410, "transaction-expired")
    assert end(mesh, begun, "resolve", outcome="commit", reason="found in the books").json()["state"] == "committed"
    eventually(lambda: "lost" in received(mesh, "tx-expired", "tx-expired"), within_s=20, what="the message")
