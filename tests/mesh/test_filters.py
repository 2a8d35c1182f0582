"""Receives with a filter: what is wanted and nothing else, progress over what is not, waits that only wanted messages end."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.mesh.test_groups import receive
from tests.support.mesh.mesh import Mesh, eventually


def send(mesh: Mesh, topic: str, *messages: dict[str, Any]) -> None:
    """A batch, every message stored once."""
    keyed = [{"idempotency_key": f"{topic}-{message['body']}", **message} for message in messages]
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": keyed})
    assert answer.json()["failed"] == 0, answer.text


def drain(mesh: Mesh, topic: str, group: str, **body: Any) -> list[str]:
    """Receive and ack until nothing more comes; the bodies in order."""
    seen: list[str] = []
    while messages := receive(mesh, topic, group, max_messages=256, **body):
        seen += [message["body"] for message in messages]
        handles = {"receipt_handles": [message["receipt_handle"] for message in messages]}
        assert mesh.patient("POST", f"/v1/topics/{topic}/groups/{group}/ack", json=handles).status_code == 200
    return seen


def lag(mesh: Mesh, group: str) -> int:
    """How many messages the group has not settled."""
    behind: int = mesh.settled("GET", f"/v1/groups/{group}/lag").json()["lag"]
    return behind


@pytest.mark.parametrize(
    ("name", "wanted", "numbers"),
    [
        ("tags", {"tags": ["Aa", "C"]}, [n for n in range(120) if n % 4 in {0, 2}]),
        ("text", {"tags": "BB"}, [n for n in range(120) if n % 4 == 1]),
        (
            "sql",
            {"sql": "price BETWEEN 10 AND 19 OR TAGS IS NULL"},
            [n for n in range(120) if n // 10 == 1 or n % 4 == 3],
        ),
        ("all", {"tags": "*"}, list(range(120))),
        ("none", {"sql": "price > 1000"}, []),
    ],
)
@pytest.mark.parametrize("kind", ["shared", "fifo"])
def test_a_group_gets_what_its_filter_lets_through(
    mesh: Mesh, kind: str, name: str, wanted: dict[str, Any], numbers: list[int]
) -> None:
    """In order, whether message groups have one or not; the rest counts as consumed. "Aa" and "BB" have one hash."""
    topic, group = f"filters-{kind}", f"filters-{kind}-{name}"
    mesh.create(topic, queues=1)
    assert mesh.settled("PUT", f"/v1/groups/{group}", json={"fifo": kind == "fifo"}).status_code in {200, 201}
    tags = ["Aa", "BB", "C", ""]
    send(
        mesh,
        topic,
        *(
            {
                "body": f"{n}",
                "tag": tags[n % 4],
                "properties": {"price": f"{n}"},
                **({"message_group": f"m{n % 7}"} if kind == "fifo" else {"queue": "broker-a:0"}),
            }
            for n in range(120)
        ),
    )
    seen = drain(mesh, topic, group, filter=wanted)
    assert sorted(seen, key=int) == [f"{n}" for n in numbers]
    of_each = {n % 7: [int(body) for body in seen if int(body) % 7 == n % 7] for n in range(7)}
    assert all(bodies == sorted(bodies) for bodies in of_each.values())
    assert lag(mesh, group) == 0


def test_a_waiting_receive_is_answered_by_what_it_wants_alone(mesh: Mesh) -> None:
    """What it does not want is consumed while it waits."""
    mesh.create("filters-wait", "filters-wait-readers", queues=2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, mesh, "filters-wait", "filters-wait-readers", wait="25s", filter={"tags": "yes"})
        send(mesh, "filters-wait", *({"body": f"no {n}", "tag": "no"} for n in range(10)))
        eventually(lambda: lag(mesh, "filters-wait-readers") == 0, within_s=30, what="progress over what is dropped")
        assert not waiting.done()
        send(mesh, "filters-wait", {"body": "this", "tag": "yes"})
        assert [message["body"] for message in waiting.result()] == ["this"]


def test_without_a_filter_of_its_own_a_receive_has_the_groups_subscription(mesh: Mesh) -> None:
    """As members say it; where they differ, nobody takes what others wait for: 409, unless the receive says what it wants."""
    mesh.create("filters-members", "filters-crew", queues=1)
    send(mesh, "filters-members", *({"body": f"{n}", "tag": "odd" if n % 2 else "even"} for n in range(10)))
    beat = "/v1/groups/filters-crew/members/heartbeat"
    says = {"member": "one", "subscriptions": {"filters-members": "odd"}}
    assert mesh.patient("POST", beat, json=says).status_code == 200
    assert [message["body"] for message in receive(mesh, "filters-members", "filters-crew", max_messages=2)] == [
        "1",
        "3",
    ]
    says = {"member": "two", "subscriptions": {"filters-members": "even"}}
    assert mesh.patient("POST", beat, json=says).status_code == 200
    path = "/v1/topics/filters-members/groups/filters-crew/receive"
    refused = mesh.patient("POST", path, json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "subscription-conflict"), refused.text
    assert [
        message["body"]
        for message in receive(mesh, "filters-members", "filters-crew", max_messages=256, filter={"tags": "*"})
    ] == [
        f"{n}"
        for n in range(5, 10)  # 4 was passed over on the way to the next odd one
    ]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"tags": "a | b"}, "illegal-filter"),
        ({"tags": ["a || b"]}, "invalid-field"),
        ({"tags": [""]}, "invalid-field"),
        ({"sql": "price >"}, "illegal-filter"),
        ({"sql": "price > 1", "tags": "a"}, "illegal-filter"),
        ({"sql": 5}, "invalid-field"),
        ({"words": "a"}, "unknown-field"),
        ("a", "invalid-field"),
    ],
)
def test_bad_filters_are_problems(mesh: Mesh, wanted: Any, code: str) -> None:
    """400, with the place of the mistake."""
    mesh.create("filters-bad", "filters-bad-readers", queues=1)
    path = "/v1/topics/filters-bad/groups/filters-bad-readers/receive"
    answer = mesh.settled("POST", path, json={"filter": wanted})
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
