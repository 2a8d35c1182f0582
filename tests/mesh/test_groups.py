"""Consumer groups through a real mesh: declared, altered, described, listed, deleted; where they begin; switched off; first use."""

import secrets
import time
from typing import Any

import pytest

from tern_client import BlockingAdmin, BlockingProducer
from tern_wire.errors import AlreadyExists, ConsumptionDisabled, GroupConflict, GroupNotFound
from tests.support.mesh.mesh import Mesh, eventually


def receive(mesh: Mesh, topic: str, group: str, **asked: Any) -> list[dict[str, Any]]:
    """Messages of one receive, the same ones if it has to be repeated."""
    body = {**asked, "attempt_id": secrets.token_hex(8)}
    reply = mesh.patient("POST", f"/v1/topics/{topic}/groups/{group}/receive", json=body)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["messages"]
    return found


def test_a_group_has_the_settings_that_were_declared(mesh: Mesh) -> None:
    """And keeps those that a later declaration does not name."""
    settings = {"invisible": "45s", "max_attempts": 5, "broadcast": True, "attributes": {"owner": "x"}}
    retry = {"policy": "exponential", "initial": "1s", "multiplier": 2, "max": "10s"}
    mesh.patient("PUT", "/v1/groups/declared-group", json={**settings, "retry": retry})
    mesh.patient("PATCH", "/v1/groups/declared-group", json={"max_attempts": 1_000})
    found = mesh.patient("GET", "/v1/groups/declared-group", proxy=1).json()
    assert (found["invisible_ms"], found["max_attempts"], found["broadcast"]) == (45_000, 1_000, True)
    assert (found["attributes"], found["start"], found["consume"]) == ({"owner": "x"}, "earliest", True)
    assert found["retry"]["delays_ms"] == [1_000, 2_000, 4_000, 8_000, 10_000]
    assert found["retry"]["multiplier"] == 2


def test_defaults_are_rocketmqs(mesh: Mesh) -> None:
    """16 attempts, 10 s to 2 h."""
    mesh.patient("PUT", "/v1/groups/default-group")
    found = mesh.patient("GET", "/v1/groups/default-group").json()
    assert (found["max_attempts"], found["invisible_ms"], found["fifo"]) == (16, 60_000, False)
    assert found["retry"]["policy"] == "table"
    assert (found["retry"]["delays_ms"][0], found["retry"]["delays_ms"][-1]) == (10_000, 7_200_000)


def test_a_group_begins_where_its_start_says_and_that_is_fixed_at_its_first_receive(mesh: Mesh) -> None:
    """earliest sees all, latest what comes after its first receive, a time what was visible from then on."""
    mesh.create("started", queues=1)
    with BlockingProducer(mesh.endpoint) as producer:
        producer.send("started", b"before")
        before = mesh.patient("GET", "/v1/topics/started/queues/broker-a:0/messages").json()["messages"][-1][
            "stored_at"
        ]
        eventually(lambda: time.time() * 1_000 > before + 50, within_s=30, what="a later millisecond")
        producer.send("started", b"after")
        stored = mesh.patient("GET", "/v1/topics/started/queues/broker-a:0/messages").json()["messages"]
        moment = stored[-1]["stored_at"]
        assert moment > before
        for group, start in (("from-earliest", "earliest"), ("from-latest", "latest"), ("from-time", moment)):
            mesh.patient("PUT", f"/v1/groups/{group}", json={"start": start})
        seen = {group: receive(mesh, "started", group) for group in ("from-earliest", "from-latest", "from-time")}
        bodies = {group: [message["body"] for message in messages] for group, messages in seen.items()}
        assert bodies == {"from-earliest": ["before", "after"], "from-latest": [], "from-time": ["after"]}
        mesh.patient("PATCH", "/v1/groups/from-latest", json={"start": "earliest"})
        producer.send("started", b"last")
        for group in ("from-earliest", "from-latest", "from-time"):
            assert [message["body"] for message in receive(mesh, "started", group, wait="5s")] == ["last"], group


def test_a_group_that_is_switched_off_receives_nothing_until_it_is_switched_on(mesh: Mesh) -> None:
    """409 with the fix; acks of what it holds still count."""
    mesh.create("switched", "switched-readers", queues=1)
    with BlockingProducer(mesh.endpoint) as producer, BlockingAdmin(mesh.endpoint) as admin:
        producer.send("switched", b"x")
        (held,) = receive(mesh, "switched", "switched-readers")
        admin.alter_group("switched-readers", consume=False)
        reply = mesh.patient("POST", "/v1/topics/switched/groups/switched-readers/receive", json={"wait": "1s"})
        assert (reply.status_code, reply.json()["code"]) == (409, ConsumptionDisabled.code)
        assert "ternmq group alter switched-readers" in reply.json()["detail"]
        acked = mesh.patient(
            "POST",
            "/v1/topics/switched/groups/switched-readers/ack",
            json={"receipt_handles": [held["receipt_handle"]]},
        )
        assert acked.json()["failed"] == 0
        producer.send("switched", b"y")
        admin.alter_group("switched-readers", consume=True)
        assert [message["body"] for message in receive(mesh, "switched", "switched-readers", wait="5s")] == ["y"]


def test_a_description_says_how_far_a_group_is(mesh: Mesh) -> None:
    """Committed, lag, leased, available, in messages; the topic names the group as well."""
    mesh.create("progress", "progress-readers", queues=1)
    with BlockingProducer(mesh.endpoint) as producer, BlockingAdmin(mesh.endpoint) as admin:
        for number in range(5):
            producer.send("progress", b"%d" % number)
        held = receive(mesh, "progress", "progress-readers", max_messages=3)
        first = {"receipt_handles": [held[0]["receipt_handle"]]}
        mesh.patient("POST", "/v1/topics/progress/groups/progress-readers/ack", json=first)
        found = admin.group("progress-readers")
        (row,) = found["topics"]
        assert row == {
            "topic": "progress",
            "lag": 4,
            "leased": 2,
            "available": 2,
            "parked": 0,
            "committed": {"broker-a:0": 1},
        }
        assert admin.group("progress-readers", "switched")["topics"] == []
        assert admin.topic("progress")["groups"] == ["progress-readers"]


def test_groups_are_listed_in_order_page_by_page(mesh: Mesh) -> None:
    """From the leader: what was just created is there."""
    with BlockingAdmin(mesh.endpoint) as admin:
        for number in range(5):
            admin.create_group(f"Counted-{number}")
        assert [row["group"] for row in admin.groups("counted-", sort="-name")] == [
            f"Counted-{n}" for n in range(4, -1, -1)
        ]
    seen: list[str] = []
    cursor = ""
    while True:
        page = mesh.patient("GET", f"/v1/groups?q=counted-&limit=2&cursor={cursor}").json()
        seen += [row["group"] for row in page["groups"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == [f"Counted-{number}" for number in range(5)]


def test_a_deleted_group_forgets_everything_and_its_name_is_free(mesh: Mesh) -> None:
    """The new one of that name begins at the beginning; handles of the old one are worth nothing."""
    mesh.create("remembered", "forgetful", queues=1)
    with BlockingProducer(mesh.endpoint) as producer, BlockingAdmin(mesh.endpoint) as admin:
        producer.send("remembered", b"x")
        (held,) = receive(mesh, "remembered", "forgetful")
        admin.delete_group("forgetful", missing_ok=True)
        with pytest.raises(GroupNotFound):
            admin.group("forgetful")
        # 412: a first attempt whose outcome nobody knew had created it.
        only_new = {"If-None-Match": "*"}
        assert mesh.patient("PUT", "/v1/groups/forgetful", headers=only_new).status_code in {201, 412}
        with pytest.raises(AlreadyExists):
            admin.create_group("forgetful", only_new=True)
        old = {"receipt_handles": [held["receipt_handle"]]}
        late = mesh.patient("POST", "/v1/topics/remembered/groups/forgetful/ack", json=old)
        assert late.status_code in {400, 410}, late.text
        assert [message["attempt"] for message in receive(mesh, "remembered", "forgetful")] == [1]


def test_fifo_changes_while_nothing_is_held(mesh: Mesh) -> None:
    """409 as long as a message is leased, with what to do; then it changes, and nothing comes twice."""
    mesh.create("decided", "decided-readers", queues=1)
    with BlockingProducer(mesh.endpoint) as producer, BlockingAdmin(mesh.endpoint) as admin:
        admin.alter_group("decided-readers", fifo=True)
        admin.alter_group("decided-readers", fifo=False)
        producer.send("decided", b"x")
        (held,) = receive(mesh, "decided", "decided-readers")
        with pytest.raises(GroupConflict, match="settled"):
            admin.alter_group("decided-readers", fifo=True)
        acked = {"receipt_handles": [held["receipt_handle"]]}
        mesh.patient("POST", "/v1/topics/decided/groups/decided-readers/ack", json=acked)
        assert admin.alter_group("decided-readers", fifo=True)["fifo"]
        producer.send("decided", b"y")
        assert [message["body"] for message in receive(mesh, "decided", "decided-readers", wait="5s")] == ["y"]


def test_the_first_receive_creates_the_group(mesh: Mesh) -> None:
    """`ternmq up` has it switched on; never for a name that is not allowed, or a topic that is not there."""
    mesh.create("read-at-once", queues=1)
    with BlockingProducer(mesh.endpoint) as producer:
        producer.send("read-at-once", b"x")
    assert [message["body"] for message in receive(mesh, "read-at-once", "made-by-receive")] == ["x"]
    assert mesh.patient("GET", "/v1/groups/made-by-receive").json()["max_attempts"] == 16
    reply = mesh.patient("POST", "/v1/topics/read-at-once/groups/made%20by/receive", json={})
    assert (reply.status_code, reply.json()["code"]) == (400, "illegal-group")
    assert mesh.patient("POST", "/v1/topics/nowhere-at-all/groups/made-for-nothing/receive", json={}).status_code == 404
    assert mesh.patient("GET", "/v1/groups/made-for-nothing").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("PUT", "/v1/groups/bad-group", {"max_attempts": 0}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"max_attempts": 1_001}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"start": "yesterday"}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"start": -1}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"start": 10**17}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"fifo": "yes"}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"invisible": "13h"}, "illegal-invisible-time"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "none"}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "custom"}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "custom", "delays": []}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "custom", "delays": ["41d"]}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "table", "max": "1h"}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "exponential", "initial": "5s", "multiplier": 0.5, "max": "1h"}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"retry": {"policy": "exponential", "initial": "5s", "multiplier": 2, "max": "1s"}}, "invalid-field"),
        ("PUT", "/v1/groups/bad-group", {"fifi": True}, "unknown-field"),
        ("PATCH", "/v1/groups/bad-group", {"consume": False}, "group-not-found"),
        ("GET", "/v1/groups?sort=lag", None, "invalid-field"),
        ("GET", "/v1/groups/bad-group", None, "group-not-found"),
        ("DELETE", "/v1/groups/bad-group?confirm=", None, "confirmation-needed"),
        ("DELETE", "/v1/groups/bad-group?confirm=bad-group", None, "group-not-found"),
    ],
)  # fmt: skip
def test_bad_input_is_a_problem_and_creates_nothing(
    mesh: Mesh, method: str, path: str, body: dict[str, Any] | None, code: str
) -> None:
    """A stable code and a sentence."""
    reply = mesh.patient(method, path, **({} if body is None else {"json": body}))
    assert reply.json()["code"] == code, reply.text
    assert mesh.patient("GET", "/v1/groups?q=bad-group").json()["groups"] == []
