"""A message's whole life through real processes: send, receive, ack, extend, pull, offsets."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from tern_wire.paths import MSGPACK, NDJSON, RECORDS
from tern_wire.records.columns import record_starts
from tern_wire.records.read import decode_record
from tests.support.mesh.mesh import Mesh, eventually


def keyed(key: str, **message: Any) -> dict[str, Any]:
    """A message to the first queue that may be sent twice and is stored once."""
    return {**message, "queue": "broker-a:0", "idempotency_key": key}


def receive(mesh: Mesh, topic: str, attempt: str, **asked: Any) -> dict[str, Any]:
    """What the group `readers` gets; if it has to be repeated, the same."""
    path = f"/v1/topics/{topic}/groups/readers/receive"
    document: dict[str, Any] = mesh.patient("POST", path, json={**asked, "attempt_id": attempt}).json()
    return document


def test_a_message_is_sent_received_and_acked_once(mesh: Mesh) -> None:
    """curl's way: the body is the message, metadata are headers, the answer says where it lies."""
    mesh.create("life", "readers")
    headers = {"MQ-Tag": "A", "MQ-Key": "k-1", "MQ-Properties": '{"Colour":"blue"}', "content-type": "text/plain"}
    headers["Idempotency-Key"] = "life"
    sent = mesh.patient("POST", "/v1/topics/life/messages", content=b"hello", headers=headers)
    assert sent.status_code in {200, 201}, sent.text
    got = receive(mesh, "life", "first", wait="5s")["messages"]
    assert [(m["body"], m["tag"], m["keys"], m["properties"], m["attempt"]) for m in got] == [
        ("hello", "A", ["k-1"], {"Colour": "blue"}, 1)
    ]
    assert sent.json()["message_id"] == got[0]["message_id"]
    assert (sent.json()["queue"], sent.json()["offset"]) == (got[0]["queue"], got[0]["offset"])
    for _ in range(2):
        handles = {"receipt_handles": [got[0]["receipt_handle"]]}
        acked = mesh.patient("POST", "/v1/topics/life/groups/readers/ack", json=handles)
        assert (acked.status_code, acked.json()["failed"]) == (200, 0)
    assert receive(mesh, "life", "again", wait=0)["messages"] == []


def test_batches_in_all_formats_come_back_whole_and_in_order(mesh: Mesh) -> None:
    """JSON, NDJSON and MessagePack; text, JSON values and bytes; pinned to one queue to see the order."""
    mesh.create("formats", "readers")
    path = "/v1/topics/formats/messages/batch"
    bodies = {"messages": [keyed("0", body="a"), keyed("1", json={"b": 1})]}
    as_json = mesh.patient("POST", path, json=bodies)
    lines = b"\n".join(json.dumps(keyed(key, body_base64="/wA=")).encode() for key in ("2", "3"))
    as_lines = mesh.patient("POST", path, content=lines, headers={"content-type": NDJSON})
    packed = msgspec.msgpack.encode({"messages": [keyed(f"{n + 4}", body=b"\xff%d" % n) for n in range(1000)]})
    as_msgpack = mesh.patient("POST", path, content=packed, headers={"content-type": MSGPACK})
    assert [reply.status_code for reply in (as_json, as_lines, as_msgpack)] == [200, 200, 200], as_json.text
    assert list(range(1004)) == [
        result["offset"] for reply in (as_json, as_lines, as_msgpack) for result in reply.json()["results"]
    ]
    queue = "/v1/topics/formats/queues/broker-a:0/messages?max_messages=2000"
    messages = mesh.patient("GET", f"{queue}&offset=0").json()["messages"]
    assert [m.get("body", m.get("json", m.get("body_base64"))) for m in messages[:4]] == ["a", {"b": 1}, "/wA=", "/wA="]
    raw = mesh.patient("GET", f"{queue}&offset=4", headers={"accept": RECORDS})
    records = [decode_record(raw.content, int(start)) for start in record_starts(raw.content)]
    assert [(n + 4, b"\xff%d" % n) for n in range(1000)] == [(record.offset, record.body) for record in records]
    assert raw.headers["mq-next-offset"] == "1004"


def test_an_idempotency_key_stores_once_and_answers_with_the_first_receipt(mesh: Mesh) -> None:
    """Through the other proxy too; another body under the same key is refused."""
    mesh.create("keys")
    path, headers = "/v1/topics/keys/messages", {"Idempotency-Key": "order-1"}
    first = mesh.patient("POST", path, content=b"x", headers=headers)
    second = eventually(
        lambda: (r := mesh.patient("POST", path, proxy=1, content=b"x", headers=headers)).status_code != 404 and r,
        within_s=30,
        what="the other proxy knows the topic",
    )
    assert first.status_code in {200, 201}  # 200: a first attempt whose outcome nobody knew had stored it
    assert second.status_code == 200
    assert second.headers["idempotency-replayed"] == "true"
    assert first.json() == second.json()
    other = mesh.patient("POST", path, content=b"y", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    offsets = mesh.patient("GET", "/v1/topics/keys/offsets").json()["queues"]
    assert sum(queue["max_offset"] for queue in offsets) == 1


def parked(mesh: Mesh, proxy: int) -> float:
    """How many polls wait at one proxy."""
    lines = mesh.call("GET", "/metrics", proxy=proxy).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if "polls" in line and not line.startswith("#"))


def test_a_long_poll_is_woken_by_a_message_and_wakes_nobody_else(mesh: Mesh) -> None:
    """Two who wait, one message: one of them gets it, the other waits to its deadline and gets nothing."""
    mesh.create("polls", "readers")
    is_over = threading.Event()
    got: list[str] = []

    def wait(proxy: int) -> None:
        path = "/v1/topics/polls/groups/readers/receive"
        while not is_over.is_set():
            asked = {"wait": "1500ms", "attempt_id": f"{proxy} {len(got)}"}
            answer = mesh.patient("POST", path, json=asked, proxy=proxy)
            got.extend(message["body"] for message in answer.json()["messages"])

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(wait, proxy) for proxy in (0, 1)]
        try:
            for proxy in (0, 1):
                eventually(partial(parked, mesh, proxy), within_s=20, what="a parked poll at each proxy")
            began_s = time.monotonic()
            path = "/v1/topics/polls/messages?idempotency_key=one"
            assert mesh.patient("POST", path, content=b"one").status_code in {200, 201}
            eventually(lambda: got, within_s=20, what="the message")
            assert time.monotonic() - began_s < 20
        finally:
            is_over.set()
        for future in waiting:
            future.result()
    assert got == ["one"]


def test_an_unacked_message_comes_back_and_extending_keeps_it(mesh: Mesh) -> None:
    """Leases end on the group's clock; the old handle is 410 then."""
    mesh.create("leases", "readers", invisible="30s")
    path, messages = "/v1/topics/leases/groups/readers", [keyed("a", body="a"), keyed("b", body="b")]
    assert mesh.patient("POST", "/v1/topics/leases/messages/batch", json={"messages": messages}).json()["failed"] == 0
    kept, left = receive(mesh, "leases", "first", wait="2s", invisible="30s")["messages"]
    entries = [
        {"receipt_handle": kept["receipt_handle"], "action": "extend", "invisible": "60s"},
        {"receipt_handle": left["receipt_handle"], "action": "extend", "invisible": "1s"},
    ]
    extended = mesh.patient("POST", f"{path}/settle", json={"entries": entries})
    # The other one may be over when the request has to be repeated.
    assert extended.json()["results"][0]["status"] == "ok", extended.text
    again = eventually(
        lambda: receive(mesh, "leases", "again", wait="10s")["messages"], within_s=30, what="the message that was left"
    )
    assert [(m["body"], m["attempt"]) for m in again] == [("b", 2)]
    expired = mesh.patient("POST", f"{path}/ack", json={"receipt_handles": [left["receipt_handle"]]})
    assert (expired.status_code, expired.json()["code"]) == (410, "receipt-expired")
    acked = mesh.patient("POST", f"{path}/ack", json={"receipt_handles": [kept["receipt_handle"]]})
    assert (acked.status_code, acked.json()["failed"]) == (200, 0)


def test_settles_ride_on_the_next_receive(mesh: Mesh) -> None:
    """One request a turn of a consumer's loop."""
    mesh.create("loop", "readers")
    messages = [keyed(f"{n}", body=f"{n}") for n in range(100)]
    assert mesh.patient("POST", "/v1/topics/loop/messages/batch", json={"messages": messages}).json()["failed"] == 0
    settle: list[dict[str, str]] = []
    seen: list[str] = []
    while True:
        answer = receive(mesh, "loop", f"{len(seen)}", max_messages=16, wait=0, settle=settle)
        assert all("error" not in settled for settled in answer["settled"])
        seen += [m["body"] for m in answer["messages"]]
        settle = [{"receipt_handle": m["receipt_handle"]} for m in answer["messages"]]
        if not settle:
            break
    assert [f"{n}" for n in range(100)] == seen
    offsets = mesh.patient("GET", "/v1/groups/readers/offsets?topic=loop").json()["offsets"]
    assert sum(offsets.values()) == 100


def test_offsets_are_committed_with_and_without_an_expectation(mesh: Mesh) -> None:
    """Compare and set; the next receive begins there."""
    mesh.create("seek", "readers", queues=1)
    messages = {"messages": [keyed(f"{n}", body=f"{n}") for n in range(5)]}
    assert mesh.patient("POST", "/v1/topics/seek/messages/batch", json=messages).json()["failed"] == 0
    path = "/v1/groups/readers/offsets"
    body = {"topic": "seek", "offsets": {"broker-a:0": 3}}
    moved = mesh.patient("PUT", path, json=body | {"expected": {"broker-a:0": 2}})
    assert (moved.status_code, moved.json()["code"]) == (409, "offset-moved")
    committed = mesh.patient("PUT", path, json=body | {"expected": {"broker-a:0": 0}})
    # 409: a first attempt whose outcome nobody knew had moved it.
    assert committed.status_code in {200, 409}, committed.text
    assert [m["body"] for m in receive(mesh, "seek", "first")["messages"]] == ["3", "4"]


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

    eventually(same, within_s=20, what="equal routes")
