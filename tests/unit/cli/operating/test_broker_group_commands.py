"""`ternmq broker-group` and `ternmq topic place`: what they tell a proxy and the name servers, in which order, what they show, and when they fail."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.operating import broker_group as broker_group_commands
from tern_cli.operating import broker_group_drain
from tern_cli.views.topic_moves import ClusterAdmin, TopicName, place_all
from tern_wire.errors import TopicConflict
from tests.support.proxy.growing_mesh import GrowingMesh, growing_mesh

RUNNER = CliRunner()
FAR_MS = 4_000_000_000_000


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrowingMesh]:
    """With two broker groups and no topics; nothing waits between two looks."""
    monkeypatch.setattr(broker_group_commands, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(broker_group_drain, "POLL_INTERVAL_S", 0.0)
    with growing_mesh() as made:
        yield made


def run(mesh: GrowingMesh, *words: str, namesrv: bool = False) -> Result:
    """`ternmq WORDS` at *mesh*."""
    more = ["--namesrv", mesh.name_server] if namesrv else []
    return RUNNER.invoke(app, [*words, "--endpoint", mesh.proxy, *more])


def drain(mesh: GrowingMesh, *words: str) -> Result:
    """`ternmq broker-group drain broker-b WORDS`."""
    return run(mesh, "broker-group", "drain", "broker-b", *words, namesrv=True)


def failure_of(result: Result) -> dict[str, Any]:
    """The last line of stderr as JSON."""
    document: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])["error"]
    return document


# One topic --------------------------------------------------------------------------------------------------------
def test_a_topic_is_placed_and_its_placement_shown(mesh: GrowingMesh) -> None:
    """Until when it is on its way, and what ends that; programs get the document."""
    mesh.moves_end_ms = 1_790_000_000_000
    mesh.add("orders", "broker-a", namespace="shop")
    words = ("--namespace", "shop", "topic", "place", "orders", "--broker-group", "broker-b")
    placed = run(mesh, *words)
    assert placed.exit_code == 0, placed.output
    assert "orders is placed on broker-b (epoch 2)." in placed.stdout
    assert "until 2026-09-21T14:13:20.000Z at least; before it was on broker-a." in placed.stdout
    assert "`ternmq topic place orders --broker-group broker-b` ends the move" in placed.stdout
    assert "still read from broker-a" in placed.stdout
    shown = run(mesh, "--namespace", "shop", "topic", "placement", "orders", "-o", "json")
    assert json.loads(shown.stdout)["before"] == ["broker-a"]
    again = run(mesh, *words, "-o", "json")
    assert not json.loads(again.stdout)["is_moving"]
    missing = run(mesh, "topic", "placement", "orders")
    assert (missing.exit_code, "ternmq topic create orders" in missing.stderr) == (1, True)


# Lists ------------------------------------------------------------------------------------------------------------
def test_broker_groups_are_listed_with_who_leads_and_who_may_be_written(mesh: GrowingMesh) -> None:
    """A line each; the same words for programs."""
    mesh.groups["broker-b"] = {"leader": "", "writable": False}
    lines = [line.split() for line in run(mesh, "broker-group", "ls").stdout.splitlines()]
    assert ["broker-a", "broker-a-0", "3", "2/3", "yes"] in lines
    assert ["broker-b", "-", "3", "2/3", "no"] in lines
    rows = json.loads(run(mesh, "broker-group", "ls", "-o", "json").stdout)
    assert [row["broker_group"] for row in rows] == ["broker-a", "broker-b"]


def test_what_is_left_is_shown_with_what_to_do_about_it(mesh: GrowingMesh) -> None:
    """A sentence for each obstacle names the command; topics of namespaces say whose they are."""
    row = {"namespace": "shop", "topic": "orders", "why": ["unread"], "unread": 12, "in_flight": 2, "scheduled": 0}
    counts = {"unread": 12, "in_flight": 2, "scheduled": 1, "unclaimed": 40, "transactions": 3, "dead_letters": 4}
    dead = [{"namespace": "shop", "group": "billing", "dead_letters": 4}]
    rows = [{**row, "groups": [{"group": "billing", "unread": 12}]}]
    mesh.left = [{**counts, "topics_left": rows, "dead_letters_left": dead}]
    mesh.add("bills", "broker-b")
    shown = run(mesh, "broker-group", "show", "broker-b")
    text = " ".join(shown.stdout.split())
    for part in (
        *("orders (namespace shop) is being read 12 2 0 billing 12", "1 topic is still placed there"),
        *("New messages go to broker-b: `ternmq broker-group drain broker-b` ends that", "ternmq scheduled ls TOPIC"),
        *(
            "12 messages are to be read, 2 of them are leased",
            "ternmq tx ls",
            "4 dead letters of billing (namespace shop)",
        ),
        "40 messages are in topics that no group reads: they go with the broker group",
    ):
        assert part in text, part
    assert "is drained" not in text
    document = json.loads(run(mesh, "broker-group", "show", "broker-b", "-o", "json").stdout)
    assert (document["unread"], document["placed"]) == (12, 1)
    unknown = run(mesh, "broker-group", "show", "broker-z")
    assert (unknown.exit_code, "known: broker-a, broker-b" in unknown.stderr) == (1, True)


# Joining ----------------------------------------------------------------------------------------------------------
def test_a_broker_group_joins_with_its_groups_first_and_then_every_topic_of_every_namespace(mesh: GrowingMesh) -> None:
    """Whatever namespace the environment names; where topics are they stay; what is there already is not told again."""
    mesh.moves_end_ms = 1_790_000_000_000
    mesh.groups["broker-c"] = {"leader": "broker-c-0", "writable": True}
    mesh.add("orders", "broker-a", "broker-c")
    mesh.add("bills", "broker-a", namespace="shop")
    mesh.add("there", "broker-b")
    joined = run(mesh, "--namespace", "bank", "broker-group", "join", "broker-b")
    assert joined.exit_code == 0, joined.output
    assert mesh.events[0] == "join broker-b"
    assert sorted(mesh.events[1:]) == ["place orders broker-a,broker-c,broker-b", "place shop/bills broker-a,broker-b"]
    assert "4 groups and 1 producer groups are new there" in joined.stdout
    assert "Topics placed anew: 2; there already: 1." in joined.stdout
    assert "2 topics are on the way until 2026-09-21T14:13:20.000Z at least" in joined.stdout
    assert "`ternmq broker-group join broker-b` then completes it" in joined.stdout


def test_a_join_that_is_repeated_completes_what_is_on_its_way(mesh: GrowingMesh) -> None:
    """The same placement is told again, which ends a move that may end; then nothing is left to tell."""
    mesh.add("orders", "broker-a")
    assert run(mesh, "broker-group", "join", "broker-b").exit_code == 0
    again = json.loads(run(mesh, "broker-group", "join", "broker-b", "-o", "json").stdout)
    assert mesh.events.count("place orders broker-a,broker-b") == 2
    assert again["moves"] == [
        {
            "namespace": "",
            "topic": "orders",
            "broker_groups": ["broker-a", "broker-b"],
            "changed": False,
            "is_moving": False,
            "moving_until": 0,
        }
    ]
    run(mesh, "broker-group", "join", "broker-b")
    assert mesh.events.count("place orders broker-a,broker-b") == 2


def test_a_topic_that_its_broker_group_lacks_is_placed_again(mesh: GrowingMesh) -> None:
    """A placement that was broken off before the topic was there."""
    mesh.add("orders", "broker-a", "broker-b").hosts = {"broker-a"}
    run(mesh, "broker-group", "join", "broker-b")
    assert "place orders broker-a,broker-b" in mesh.events


def test_only_topics_that_are_named_join(mesh: GrowingMesh) -> None:
    """By patterns, in any namespace or in one; what fits nothing is a mistake."""
    for namespace, topic in (("", "orders-1"), ("shop", "orders-2"), ("shop", "bills"), ("", "bills")):
        mesh.add(topic, "broker-a", namespace=namespace)
    words = ("broker-group", "join", "broker-b", "--topic")
    assert run(mesh, *words, "orders*", "--topic", "shop/b*").exit_code == 0
    assert sorted(mesh.events[1:]) == [
        f"place {topic} broker-a,broker-b" for topic in ("orders-1", "shop/bills", "shop/orders-2")
    ]
    nothing = run(mesh, *words, "nope*")
    assert (nothing.exit_code, "No topic is like nope*" in nothing.stderr) == (1, True)
    assert run(mesh, *words, "orders*", "--all-topics").exit_code == 2


def test_one_topics_trouble_keeps_no_other_from_its_place(mesh: GrowingMesh) -> None:
    """It is named, with the reason, and the exit code says that something is left."""
    mesh.add("bad", "broker-a")
    mesh.add("good", "broker-a")
    mesh.refusals["", "bad"] = TopicConflict(topic="bad", actual=8, wanted=4)
    joined = run(mesh, "broker-group", "join", "broker-b", "-o", "json")
    assert joined.exit_code == 1
    assert mesh.topics["", "good"].groups == ["broker-a", "broker-b"]
    assert failure_of(joined)["lines"][0].startswith("bad: ")
    assert "Repeat `ternmq broker-group join broker-b`" in failure_of(joined)["detail"]


def test_a_join_waits_for_a_leader_and_says_who_is_missing(mesh: GrowingMesh) -> None:
    """Nobody registered, nobody leads, nothing may be written: each with its way out, and nothing is done."""
    unknown = run(mesh, "broker-group", "join", "broker-z", "--timeout", "0ms")
    assert (unknown.exit_code, "known: broker-a, broker-b" in unknown.stderr) == (1, True)
    mesh.groups["broker-b"]["leader"] = ""
    waited = run(mesh, "broker-group", "join", "broker-b", "--timeout", "20ms")
    assert (waited.exit_code, "ternmq raft status" in waited.stderr) == (1, True)
    mesh.groups["broker-b"] = {"leader": "broker-b-0", "writable": False}
    wiped = run(mesh, "broker-group", "join", "broker-b")
    assert (wiped.exit_code, "ternmq broker-group restore broker-b" in wiped.stderr) == (1, True)
    assert run(mesh, "broker-group", "join", "broker-b", "--timeout", "soon").exit_code == 2
    assert mesh.events == []


# Draining ---------------------------------------------------------------------------------------------------------
def test_a_broker_group_is_drained_by_withdrawing_and_placing_elsewhere(mesh: GrowingMesh) -> None:
    """In this order; a topic stays where else it is, and one that is nowhere else goes to all others that may be written."""
    mesh.groups["broker-c"] = {"leader": "broker-c-0", "writable": True}
    mesh.groups["broker-d"] = {"leader": "broker-d-0", "writable": False}
    mesh.add("both", "broker-a", "broker-b")
    mesh.add("alone", "broker-b", namespace="shop")
    mesh.add("elsewhere", "broker-a")
    drained = drain(mesh)
    assert drained.exit_code == 0, drained.output
    assert mesh.events[0] == "wipe broker-b"
    assert sorted(mesh.events[1:]) == ["place both broker-a", "place shop/alone broker-a,broker-c"]
    assert "Topics placed anew: 2" in drained.stdout
    assert "2 topics are on the way from there: `ternmq broker-group drain broker-b --wait`" in drained.stdout
    assert "Stop its processes" not in drained.stdout


def test_waiting_ends_when_nothing_is_left_and_no_topic_moves(mesh: GrowingMesh) -> None:
    """Moves are completed on the way; then it says what to do next, and what goes with the broker group."""
    mesh.add("both", "broker-a", "broker-b")
    mesh.left = [{"unread": 5}, {"unread": 2}, {"unclaimed": 7}]
    drained = drain(mesh, "--wait")
    assert drained.exit_code == 0, drained.output
    assert mesh.events == ["wipe broker-b", "place both broker-a", "place both broker-a"]
    assert not mesh.topics["", "both"].is_moving
    assert "broker-b is drained" in drained.stdout
    assert "7 messages are in topics that no group reads" in drained.stdout
    assert "Stop its processes: the mesh goes on without broker-b." in drained.stdout
    document = json.loads(drain(mesh, "--wait", "-o", "json").stdout)
    assert (document["is_drained"], document["moves"]) == (True, [])


def test_a_wait_that_takes_too_long_fails_with_what_is_left(mesh: GrowingMesh) -> None:
    """Of messages and of moves; a move is not asked for before its time."""
    mesh.moves_end_ms = FAR_MS
    mesh.add("both", "broker-a", "broker-b")
    mesh.left = [{"unread": 5}]
    waited = drain(mesh, "--wait", "--timeout", "50ms", "-o", "json")
    assert (waited.exit_code, waited.stdout) == (1, "")
    assert failure_of(waited)["title"] == "The broker group is not drained yet"
    assert any("5 messages are to be read" in line for line in failure_of(waited)["lines"])
    assert mesh.events.count("place both broker-a") == 1


def test_what_keeps_a_move_is_told_when_waiting_ends(mesh: GrowingMesh) -> None:
    """As the broker groups say it: somebody must settle something."""
    mesh.keeps = "the messages of 3 message groups are settled in broker-b"
    mesh.add("both", "broker-a", "broker-b")
    waited = drain(mesh, "--wait", "--timeout", "100ms")
    assert (waited.exit_code, f"both: it ends when {mesh.keeps}" in waited.stderr) == (1, True)


def test_a_drain_that_is_repeated_goes_on_where_it_was(mesh: GrowingMesh) -> None:
    """What is on its way is completed, nothing is moved a second time."""
    mesh.add("both", "broker-a", "broker-b")
    drain(mesh)
    again = drain(mesh)
    assert "Topics placed anew: 0; there already: 1." in again.stdout
    assert "broker-b is drained" in again.stdout
    assert mesh.topics["", "both"].epoch == 2


def test_trouble_with_a_topic_is_named_and_waiting_tries_it_again(mesh: GrowingMesh) -> None:
    """It is no obstacle when it passes; if it stays, the exit code says so."""
    mesh.add("both", "broker-a", "broker-b")
    mesh.refusals["", "both"] = TopicConflict(topic="both", actual=8, wanted=4)
    refused = drain(mesh)
    assert (refused.exit_code, "both: " in refused.stderr) == (1, True)
    waited = drain(mesh, "--wait", "--timeout", "50ms")
    assert (waited.exit_code, "both: " in waited.stderr) == (1, True)
    mesh.refusals.clear()
    assert drain(mesh, "--wait").exit_code == 0


def test_the_last_broker_group_is_not_drained(mesh: GrowingMesh) -> None:
    """Nor one whose others are withdrawn or without a leader: nothing is touched, and the way out is named."""
    for other in ({"leader": "broker-a-0", "writable": False}, {"leader": "", "writable": True}):
        mesh.groups["broker-a"] = other
        refused = drain(mesh)
        assert (refused.exit_code, "ternmq broker-group join" in refused.stderr) == (1, True)
    del mesh.groups["broker-a"]
    assert drain(mesh).exit_code == 1
    unknown = run(mesh, "broker-group", "drain", "broker-z", namesrv=True)
    assert (unknown.exit_code, "known: broker-b" in unknown.stderr) == (1, True)
    assert mesh.events == []


def test_what_proxies_have_not_heard_yet_is_told_as_such(mesh: GrowingMesh) -> None:
    """The permission is withdrawn, and the answer of the proxy is older: nobody is told to do it again."""
    mesh.hears_late, mesh.left = True, [{"unread": 1}]
    assert "New messages go to broker-b" in run(mesh, "broker-group", "show", "broker-b").stdout
    drained = drain(mesh)
    assert "broker-b may not be written any more; proxies hear of it within 30 s." in drained.stdout
    assert "New messages go to broker-b" not in drained.stdout


def test_a_broker_group_gets_its_permission_back(mesh: GrowingMesh) -> None:
    """And the command that brings topics back is named."""
    mesh.groups["broker-b"]["writable"] = False
    restored = RUNNER.invoke(app, ["broker-group", "restore", "broker-b", "--namesrv", mesh.name_server])
    assert (restored.exit_code, mesh.events) == (0, ["restore broker-b"])
    assert "ternmq broker-group join broker-b" in restored.stdout
    words = ["broker-group", "restore", "broker-b", "--namesrv", mesh.name_server, "-o", "json"]
    assert json.loads(RUNNER.invoke(app, words).stdout)["writable"] is True


def test_a_topic_that_goes_meanwhile_is_no_trouble(mesh: GrowingMesh) -> None:
    """It was listed, and is deleted before its turn."""
    mesh.add("orders", "broker-a")
    mesh.add("gone", "broker-a")
    listed = mesh._listed
    mesh._listed = lambda name, query: (listed(name, query), mesh.topics.pop(("", "gone"), None))[0]  # type: ignore[method-assign]
    joined = run(mesh, "broker-group", "join", "broker-b")
    assert joined.exit_code == 0, joined.output
    assert "Topics placed anew: 1" in joined.stdout


def test_a_command_that_is_broken_off_ends_what_is_under_way_and_begins_nothing_more(mesh: GrowingMesh) -> None:
    """Ctrl-C in the middle of many topics: what is placed is placed, and a repeat places the others."""
    for number in range(200):
        mesh.add(f"t{number:03}", "broker-a")
    topics = [TopicName(*place) for place in mesh.topics]

    def stop() -> None:
        raise KeyboardInterrupt

    with ClusterAdmin([mesh.proxy]) as admins:
        with pytest.raises(KeyboardInterrupt):
            place_all(admins, topics, lambda _: ["broker-b"], stop)
        done = len(mesh.events)
        assert 0 < done < 200
        place_all(admins, topics, lambda _: ["broker-b"])
    assert {tuple(placed.groups) for placed in mesh.topics.values()} == {("broker-b",)}
