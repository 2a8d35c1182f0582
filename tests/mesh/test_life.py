"""A message's whole life through real processes: send, receive, ack, extend, pull, offsets."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from tern_wire.paths import MSGPACK, NDJSON, RECORDS
from tern_wire.record import decode_record, record_starts
from tests.support.mesh import Mesh, eventually


def test_a_message_is_sent_received_and_acked_once(mesh: Mesh) -> None:
    """curl's way: the body is the message, metadata are headers, the answer says where it lies."""
    mesh.create("life", "readers")
    headers = {"MQ-Tag": "A", "MQ-Key": "k-1", "MQ-Properties": '{"Colour":"blue"}', "content-type": "text/plain"}
    sent = mesh.call("POST", "/v1/topics/life/messages", content=b"hello", headers=headers)
    assert sent.status_code == 201, sent.text
    got = mesh.call("POST", "/v1/topics/life/groups/readers/receive", json={"wait": "5s"}).json()["messages"]
    assert [(m["body"], m["tag"], m["keys"], m["properties"], m["attempt"]) for m in got] == [
        ("hello", "A", ["k-1"], {"Colour": "blue"}, 1)
    ]
    assert sent.json()["message_id"] == got[0]["message_id"]
    assert (sent.json()["queue"], sent.json()["offset"]) == (got[0]["queue"], got[0]["offset"])
    for _ in range(2):
        acked = mesh.call(
            "POST", "/v1/topics/life/groups/readers/ack", json={"receipt_handles": [got[0]["receipt_handle"]]}
        )
        assert (acked.status_code, acked.json()["failed"]) == (200, 0)
    again = mesh.call("POST", "/v1/topics/life/groups/readers/receive", json={"wait": 0}).json()
    assert again["messages"] == []


def test_batches_in_all_formats_come_back_whole_and_in_order(mesh: Mesh) -> None:
    """JSON, NDJSON and MessagePack; text, JSON values and bytes; pinned to one queue to see the order."""
    mesh.create("formats", "readers")
    path = "/v1/topics/formats/messages/batch"
    queue = "broker-a:0"
    as_json = mesh.call(
        "POST", path, json={"messages": [{"body": "a", "queue": queue}, {"json": {"b": 1}, "queue": queue}]}
    )
    lines = b"\n".join(json.dumps({"body_base64": "/wA=", "queue": queue}).encode() for _ in range(2))
    as_lines = mesh.call("POST", path, content=lines, headers={"content-type": NDJSON})
    packed = msgspec.msgpack.encode({"messages": [{"body": b"\xff%d" % n, "queue": queue} for n in range(1000)]})
    as_msgpack = mesh.call("POST", path, content=packed, headers={"content-type": MSGPACK})
    assert [reply.status_code for reply in (as_json, as_lines, as_msgpack)] == [200, 200, 200], as_json.text
    assert list(range(1004)) == [
        result["offset"] for reply in (as_json, as_lines, as_msgpack) for result in reply.json()["results"]
    ]
    page = mesh.call("GET", f"/v1/topics/formats/queues/{queue}/messages?offset=0&max_messages=2000")
    messages = page.json()["messages"]
    assert [m.get("body", m.get("json", m.get("body_base64"))) for m in messages[:4]] == ["a", {"b": 1}, "/wA=", "/wA="]
    raw = mesh.call(
        "GET", f"/v1/topics/formats/queues/{queue}/messages?offset=4&max_messages=2000", headers={"accept": RECORDS}
    )
    records = [decode_record(raw.content, int(start)) for start in record_starts(raw.content)]
    assert [(n + 4, b"\xff%d" % n) for n in range(1000)] == [(record.offset, record.body) for record in records]
    assert raw.headers["mq-next-offset"] == "1004"


def test_an_idempotency_key_stores_once_and_answers_with_the_first_receipt(mesh: Mesh) -> None:
    """Through the other proxy too; another body under the same key is refused."""
    mesh.create("keys")
    path, headers = "/v1/topics/keys/messages", {"Idempotency-Key": "order-1"}
    first = mesh.call("POST", path, content=b"x", headers=headers)
    second = eventually(
        lambda: (r := mesh.call("POST", path, proxy=1, content=b"x", headers=headers)).status_code != 404 and r,
        within_s=5,
        what="the other proxy knows the topic",
    )
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotency-replayed"] == "true"
    assert first.json() == second.json()
    other = mesh.call("POST", path, content=b"y", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    offsets = mesh.call("GET", "/v1/topics/keys/offsets").json()["queues"]
    assert sum(queue["max_offset"] for queue in offsets) == 1


def parked(mesh: Mesh, proxy: int) -> float:
    """How many polls wait at one proxy."""
    lines = mesh.call("GET", "/metrics", proxy=proxy).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if "polls" in line and not line.startswith("#"))


def test_a_long_poll_is_woken_by_a_message_and_wakes_nobody_else(mesh: Mesh) -> None:
    """Two parked polls, one message: one of them gets it, the other waits to its deadline and gets nothing."""
    mesh.create("polls", "readers")
    poll = {"wait": "3s", "max_messages": 10}
    with ThreadPoolExecutor(2) as pool:
        began_s = time.monotonic()
        waiting = [
            pool.submit(mesh.call, "POST", "/v1/topics/polls/groups/readers/receive", json=poll, proxy=n % 2)
            for n in range(2)
        ]
        for proxy in (0, 1):
            eventually(partial(parked, mesh, proxy), within_s=5, what="a parked poll at each proxy")
        mesh.call("POST", "/v1/topics/polls/messages", content=b"one")
        got = [len(future.result().json()["messages"]) for future in waiting]
    assert sorted(got) == [0, 1]
    assert time.monotonic() - began_s < 20


def test_an_unacked_message_comes_back_and_extending_keeps_it(mesh: Mesh) -> None:
    """Leases end on the group's clock; the old handle is 410 then."""
    mesh.create("leases", "readers", invisible="1s")
    mesh.call("POST", "/v1/topics/leases/messages/batch", json={"messages": [{"body": "a"}, {"body": "b"}]})
    receive, settle = "/v1/topics/leases/groups/readers/receive", "/v1/topics/leases/groups/readers/settle"
    first = mesh.call("POST", receive, json={"wait": "2s"}).json()["messages"]
    kept = first[0]["receipt_handle"]
    extended = mesh.call(
        "POST", settle, json={"entries": [{"receipt_handle": kept, "action": "extend", "invisible": "30s"}]}
    )
    assert extended.status_code == 200, extended.text
    again = mesh.call("POST", receive, json={"wait": "10s", "invisible": "30s"}).json()["messages"]
    assert [(m["body"], m["attempt"]) for m in again] == [("b", 2)]
    expired = mesh.call(
        "POST", "/v1/topics/leases/groups/readers/ack", json={"receipt_handles": [first[1]["receipt_handle"]]}
    )
    assert (expired.status_code, expired.json()["code"]) == (410, "receipt-expired")
    assert (
        mesh.call("POST", "/v1/topics/leases/groups/readers/ack", json={"receipt_handles": [kept]}).status_code == 200
    )


def test_settles_ride_on_the_next_receive(mesh: Mesh) -> None:
    """One request a turn of a consumer's loop."""
    mesh.create("loop", "readers")
    messages = [{"body": f"{n}"} for n in range(100)]
    mesh.call("POST", "/v1/topics/loop/messages/batch", json={"messages": messages})
    settle: list[dict[str, str]] = []
    seen = []
    while True:
        body = {"max_messages": 16, "wait": 0, "settle": settle}
        answer = mesh.call("POST", "/v1/topics/loop/groups/readers/receive", json=body).json()
        assert all("error" not in settled for settled in answer["settled"])
        seen += [m["body"] for m in answer["messages"]]
        settle = [{"receipt_handle": m["receipt_handle"]} for m in answer["messages"]]
        if not settle:
            break
    assert [f"{n}" for n in range(100)] == seen
    offsets = mesh.call("GET", "/v1/groups/readers/offsets?topic=loop").json()["offsets"]
    assert sum(offsets.values()) == 100


def test_offsets_are_committed_with_and_without_an_expectation(mesh: Mesh) -> None:
    """Compare and set; the next receive begins there."""
    mesh.create("seek", "readers", queues=1)
    mesh.call("POST", "/v1/topics/seek/messages/batch", json={"messages": [{"body": f"{n}"} for n in range(5)]})
    path = "/v1/groups/readers/offsets"
    body = {"topic": "seek", "offsets": {"broker-a:0": 3}}
    moved = mesh.call("PUT", path, json=body | {"expected": {"broker-a:0": 2}})
    assert (moved.status_code, moved.json()["code"]) == (409, "offset-moved")
    assert mesh.call("PUT", path, json=body | {"expected": {"broker-a:0": 0}}).status_code == 200
    got = mesh.call("POST", "/v1/topics/seek/groups/readers/receive", json={}).json()["messages"]
    assert [m["body"] for m in got] == ["3", "4"]


def test_both_name_servers_know_the_same_routes(mesh: Mesh) -> None:
    """Independent instances, told by every broker."""
    mesh.create("everywhere")

    def same() -> bool:
        one, two = (mesh.client.get(mesh.namesrv[:-1] + f"{n}/v1/routes").json() for n in (0, 1))
        return (
            "everywhere" in one["topics"]
            and one["topics"] == two["topics"]
            and one["broker_groups"] == two["broker_groups"]
        )

    eventually(same, within_s=5, what="equal routes")
