"""Topics through a real mesh: declared, altered, described, listed, deleted; what their types and permissions allow; first use."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tern_client import BlockingAdmin, BlockingProducer
from tern_wire.errors import AlreadyExists, OutcomeUnknown, TopicConflict, TopicNotFound
from tests.support.mesh.mesh import Mesh, eventually


def names_on(mesh: Mesh, q: str, proxy: int = 0) -> list[str]:
    """Names of listed topics with *q* in them."""
    return [row["topic"] for row in mesh.patient("GET", f"/v1/topics?q={q}", proxy=proxy).json()["topics"]]


def test_a_topic_has_the_settings_that_were_declared_at_every_proxy(mesh: Mesh) -> None:
    """Described by the leader, so at once."""
    settings: dict[str, Any] = {"queues": 3, "type": "FIFO", "permission": "r", "when_full": "drop-oldest"}
    settings |= {"attributes": {"owner": "billing"}}
    first = mesh.patient("PUT", "/v1/topics/declared", json=settings)
    assert first.status_code in {200, 201}
    again = mesh.patient("PUT", "/v1/topics/declared", json={})
    assert (again.status_code, again.json()["created"]) == (200, False)
    found = mesh.patient("GET", "/v1/topics/declared", proxy=1).json()
    assert {name: found[name] for name in settings} == settings
    assert found["broker_groups"] == {"broker-a": 3}
    assert [row["queue"] for row in found["offsets"]] == [f"broker-a:{queue}" for queue in range(3)]


def test_what_is_not_named_has_its_default(mesh: Mesh) -> None:
    """8 queues, MIXED, read and write: a curl user's topic takes everything."""
    mesh.patient("PUT", "/v1/topics/default-topic")
    found = mesh.patient("GET", "/v1/topics/default-topic").json()
    assert (found["queues"], found["type"], found["permission"]) == (8, "MIXED", "rw")
    assert (found["when_full"], found["attributes"]) == ("refuse", {})


def test_queues_grow_and_never_shrink(mesh: Mesh) -> None:
    """409 says how many there are; the new queues take messages at once."""
    with BlockingAdmin(mesh.endpoint) as admin, BlockingProducer(mesh.endpoint) as producer:
        admin.create_topic("growing", 2)
        assert admin.alter_topic("growing", queues=5)["queues"] == 5
        with pytest.raises(TopicConflict, match="at least 5"):
            admin.alter_topic("growing", queues=4)
        assert producer.send("growing", b"x", queue="broker-a:4").queue == "broker-a:4"
        assert admin.topic("growing")["queues"] == 5


def test_create_only_leaves_what_is_there_alone(mesh: Mesh) -> None:
    """If-None-Match: * answers 412."""
    with BlockingAdmin(mesh.endpoint) as admin:
        admin.create_topic("only-once", 2)

        def is_refused() -> bool:
            try:
                admin.create_topic("only-once", 4, only_new=True)
            except AlreadyExists:
                return True
            except OutcomeUnknown:
                pass  # a leader died with it, and only who asked knows whether it may be asked again
            return False

        eventually(is_refused, within_s=30, what="the second creation is refused")
        assert admin.topic("only-once")["queues"] == 2
        with pytest.raises(TopicNotFound):
            admin.alter_topic("never-made", permission="r")


def test_lists_are_paged_in_order_and_filtered_on_the_server(mesh: Mesh) -> None:
    """Every topic once, whatever the page size; backwards too; internal topics never."""
    with BlockingAdmin(mesh.endpoint) as admin:
        for number in range(7):
            admin.create_topic(f"Listed-{number}", 1 + number % 3)
    seen: list[str] = []
    cursor = ""
    while True:
        page = mesh.patient("GET", f"/v1/topics?q=LISTED-&limit=3&sort=-queues&cursor={cursor}").json()
        assert len(page["topics"]) <= 3
        seen += [row["topic"] for row in page["topics"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == [f"Listed-{number}" for number in (5, 2, 4, 1, 6, 3, 0)]
    assert names_on(mesh, "listed-") == sorted(seen)
    assert not [name for name in names_on(mesh, "") if "%" in name]


def test_a_deleted_topic_is_gone_with_its_messages_and_its_name_is_free(mesh: Mesh) -> None:
    """The new topic begins at offset 0, for a group that had read the old one, too. A deletion must be confirmed."""
    mesh.create("mortal", "mortal-readers", queues=1)
    with BlockingProducer(mesh.endpoint) as producer:
        for number in range(5):
            producer.send("mortal", b"old %d" % number)
    received = mesh.patient(
        "POST",
        "/v1/topics/mortal/groups/mortal-readers/receive",
        json={"max_messages": 3, "attempt_id": "mortal"},
    ).json()
    assert len(received["messages"]) == 3
    refused = mesh.patient("DELETE", "/v1/topics/mortal")
    assert (refused.status_code, refused.json()["code"]) == (400, "confirmation-needed")
    # 404: a first attempt whose outcome nobody knew had deleted it.
    assert mesh.patient("DELETE", "/v1/topics/mortal?confirm=mortal").status_code in {200, 404}
    assert mesh.patient("GET", "/v1/topics/mortal").status_code == 404
    assert "mortal" not in names_on(mesh, "mortal")
    assert mesh.patient("DELETE", "/v1/topics/mortal?confirm=mortal").status_code == 404
    eventually(lambda: "mortal" not in names_on(mesh, "mortal", proxy=1), within_s=30, what="the other proxy knows")
    mesh.create("mortal", queues=1)
    with BlockingProducer(mesh.endpoint) as producer:
        assert producer.send("mortal", b"new").offset == 0
    received = mesh.patient("POST", "/v1/topics/mortal/groups/mortal-readers/receive", json={"wait": "5s"}).json()
    assert [(message["body"], message["attempt"]) for message in received["messages"]] == [("new", 1)]


def test_types_decide_which_messages_a_topic_takes(mesh: Mesh) -> None:
    """400 property-conflicts-with-type, with the field and the fix; in a batch each message for itself."""
    takes = {
        "NORMAL": ["plain"],
        "FIFO": ["grouped"],
        "DELAY": ["delayed"],
        "TRANSACTION": [],
        "MIXED": ["plain", "grouped", "delayed"],
    }
    sends = {"plain": {}, "grouped": {"message_group": "u1"}, "delayed": {"delay": "1s"}}
    for kind, taken in takes.items():
        topic = f"of-type-{kind.lower()}"
        mesh.patient("PUT", f"/v1/topics/{topic}", json={"type": kind, "queues": 1})
        for name, fields in sends.items():
            body = {"messages": [{"body": "x", **fields}]}
            reply = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json=body)
            if name in taken:
                assert reply.status_code == 200, f"{kind} {name}: {reply.text}"
            else:
                assert (reply.status_code, reply.json()["code"]) == (400, "property-conflicts-with-type"), (
                    f"{kind} {name}"
                )
                assert kind in reply.json()["detail"]


def test_permissions_are_kept_at_every_proxy(mesh: Mesh) -> None:
    """403 for sends or reads; a proxy whose routes are older hears it from the broker."""
    mesh.create("guarded", "guarded-readers", queues=1)
    assert mesh.patient("POST", "/v1/topics/guarded/messages", content=b"x", proxy=1).status_code == 201
    for permission, may_send, may_read in (
        ("r", False, True),
        ("w", True, False),
        ("none", False, False),
        ("rw", True, True),
    ):
        mesh.patient("PATCH", "/v1/topics/guarded", json={"permission": permission})
        for proxy in (0, 1):
            sent = mesh.patient("POST", "/v1/topics/guarded/messages", content=b"x", proxy=proxy)
            got = mesh.patient("POST", "/v1/topics/guarded/groups/guarded-readers/receive", json={}, proxy=proxy)
            pulled = mesh.patient("GET", "/v1/topics/guarded/queues/broker-a:0/messages", proxy=proxy)
            if may_send:
                # The proxy that did not make the change forbids until its routes say otherwise.
                eventually(
                    lambda proxy=proxy: (
                        mesh.patient("POST", "/v1/topics/guarded/messages", content=b"x", proxy=proxy).status_code
                        == 201
                    ),  # type: ignore[misc]
                    within_s=30,
                    what="sends are allowed again",
                )
            else:
                assert (sent.status_code, sent.json()["code"]) == (403, "topic-not-writable")
            for reply in (got, pulled):
                assert reply.status_code == (200 if may_read else 403), reply.text
                assert may_read or reply.json()["code"] == "topic-not-readable"


def test_the_first_send_creates_the_topic_once_however_many_come(mesh: Mesh) -> None:
    """`ternmq up` has it switched on: 16 first sends at two proxies, one topic with 8 queues, no message lost."""

    def send(number: int) -> int:
        return mesh.patient(
            "POST", "/v1/topics/made-by-use/messages", content=b"%d" % number, proxy=number % 2
        ).status_code

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(16))) == {201}
    found = mesh.patient("GET", "/v1/topics/made-by-use").json()
    assert (found["queues"], found["type"]) == (8, "MIXED")
    assert sum(row["max_offset"] for row in found["offsets"]) >= 16
    bad = mesh.patient("POST", "/v1/topics/made.by.use/messages", content=b"x")
    assert (bad.status_code, bad.json()["code"]) == (400, "illegal-topic")
    assert mesh.patient("POST", "/v1/topics/only-read/groups/g/receive", json={}).status_code == 404


def test_a_list_of_which_only_the_head_is_read_is_no_failure(mesh: Mesh) -> None:
    """`ternmq topic ls | head`: who has seen enough closes the pipe; the command ends well and says nothing."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        command = [sys.executable, "-m", "tern_cli", "topic", "ls", "-o", "json", "--endpoint", mesh.endpoint]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("method", "path", "options", "code"),
    [
        ("PUT", "/v1/topics/bad-topic", {"json": {"queues": True}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"queues": "8"}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"queues": 0}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"type": "fifo"}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"permission": "rwx"}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"attributes": {"a b": "x"}}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"when_full": "drop"}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"attributes": {"when_full": "refuse"}}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"attributes": {"a": "x" * 300}}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"attributes": {f"a{n}": "x" for n in range(17)}}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {"perm": 6}}, "unknown-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": [], "headers": {}}, "invalid-field"),
        ("PUT", "/v1/topics/bad-topic", {"json": {}, "headers": {"If-None-Match": '"x"'}}, "invalid-field"),
        ("PATCH", "/v1/topics/bad-topic", {"json": {}}, "topic-not-found"),
        ("GET", "/v1/topics?limit=0", {}, "invalid-field"),
        ("GET", "/v1/topics?limit=1001", {}, "invalid-field"),
        ("GET", "/v1/topics?sort=size", {}, "invalid-field"),
        ("GET", "/v1/topics?cursor=nonsense", {}, "invalid-field"),
        ("GET", "/v1/topics?order=name", {}, "unknown-parameter"),
        ("GET", "/v1/topics/%25DLQ%25g", {}, "illegal-topic"),
        ("DELETE", "/v1/topics/bad-topic?confirm=bad-topik", {}, "confirmation-needed"),
    ],
)
def test_bad_input_is_a_problem_and_creates_nothing(
    mesh: Mesh, method: str, path: str, options: dict[str, Any], code: str
) -> None:
    """A stable code and a sentence."""
    reply = mesh.patient(method, path, **options)
    assert reply.status_code in {400, 404}
    assert reply.json()["code"] == code, reply.text
    assert names_on(mesh, "bad-topic") == []
