"""`ternmq raft`: what brokers say as a table and as JSON, and handing leadership over; stand-in brokers behind real sockets."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, said
from tests.support.mesh.stand_in_mesh import mesh_document

RUNNER = CliRunner()


class Group:
    """Three brokers and their name server. *heir*: who leads after a transfer was asked for; "" for nobody."""

    def __init__(self, heir: str = "broker-a-1") -> None:
        self.leader, self.term, self.heir = "broker-a-0", 3, heir
        self.reason = ""
        self.asked_for: list[str] = []
        # While brokers are blocked: what each says of that.
        self.blocked: dict[str, dict[str, Any]] = {}
        # While the group is held: what each noted.
        self.digests: dict[str, str] = {}
        self.dead: set[str] = set()
        self.http: dict[str, str] = {}
        self.namesrv = ""

    def answer(self, node: str, asked: Asked) -> Reply:
        """What *node* says."""
        if node in self.dead:
            return Reply(hang_up=True)
        if asked.path == "/v1/broker/transfer":
            self.asked_for.append(asked.document["to"])
            if self.reason:
                return said({"asked": False, "leader": self.leader, "to": "", "reason": self.reason}, 409)
            if self.heir:
                self.leader, self.term = self.heir, self.term + 1
            return said({"asked": True, "leader": node, "to": self.heir, "reason": ""}, 202)
        if asked.path == "/v1/broker/choose":
            self.asked_for.append(f"{node}: {asked.document['node']}")
            return said({"asked": not self.reason, "reason": self.reason}, 409 if self.reason else 202)
        if asked.path == "/v1/broker/pass-over":
            self.asked_for.append(f"{node}: {asked.document}")
            return said({"asked": not self.reason, "reason": self.reason}, 409 if self.reason else 202)
        leads = node == self.leader
        peers = [
            {"node": peer, "connected": peer not in self.dead, "match_index": 40 if leads else 0}
            for peer in self.http
            if peer != node
        ]
        return said(
            {
                "node": node,
                "role": "leader" if leads else "follower",
                "serving": leads and not self.digests and not self.blocked,
                "blocked": self.blocked.get(node),
                "held": bool(self.digests),
                "comparison": {
                    "index": 40,
                    "judged_index": 40,
                    "digests": {node: self.digests[node]} if node in self.digests else {},
                    "disagreement": self.digests,
                    "chosen": "",
                    "undecided": bool(self.digests),
                },
                "standing": "member",
                "term": self.term,
                "commit_index": 41,
                "applied_index": 41,
                "last_index": 42,
                "version": 2 if node == "broker-a-1" else 1,
                "level": 1,
                "fsync_ms": 1.5,
                "disk_permille": 123,
                "peers": peers,
            }
        )

    def routes(self, _: Asked) -> Reply:
        """What the name server says."""
        nodes = {name: {"link": "127.0.0.1:1", "http": at} for name, at in self.http.items()}
        return said({"broker_groups": {"broker-a": {"leader": "", "term": 0, "nodes": nodes}}})

    def run(self, *words: str) -> Result:
        """`ternmq raft WORDS` at this group's name server."""
        return RUNNER.invoke(app, ["raft", *words, "--namesrv", self.namesrv])


@contextmanager
def group(**facts: Any) -> Iterator[Group]:
    """A group that listens."""
    made = Group(**facts)
    with ExitStack() as stack:
        for number in range(3):
            name = f"broker-a-{number}"

            def answer(asked: Asked, name: str = name) -> Reply:
                return made.answer(name, asked)

            made.http[name] = stack.enter_context(blocking_proxy(answer)).url.removeprefix("http://")
        made.namesrv = stack.enter_context(blocking_proxy(made.routes)).url
        yield made


def test_status_shows_every_broker_and_who_lags() -> None:
    """Lag as the leader says it; one that does not answer has its row too."""
    with group() as made:
        made.dead.add("broker-a-2")
        as_json = made.run("status", "-o", "json")
        table = made.run("status")
    assert as_json.exit_code == 0, as_json.output
    rows = {row["node"]: row for row in json.loads(as_json.stdout)}
    assert {name: (row["role"], row["lag"]) for name, row in rows.items()} == {
        "broker-a-0": ("leader", 0),
        "broker-a-1": ("follower", 2),
        "broker-a-2": ("no answer", 2),
    }
    assert rows["broker-a-0"]["connected_peers"] == ["broker-a-1"]
    assert (rows["broker-a-2"]["term"], rows["broker-a-1"]["fsync_ms"]) == (None, 1.5)
    assert [(row["version"], row["level"]) for row in rows.values()] == [(1, 1), (2, 1), (None, None)]
    lines = {line.split()[0]: line.split() for line in table.stdout.splitlines() if "broker-a-" in line}
    assert lines["broker-a-1"][1:] == [
        "follower",
        "3",
        "41",
        "41",
        "42",
        "2",
        "2",
        "(group",
        "1)",
        "1.5",
        "ms",
        "12.3",
        "1/2",
    ]
    assert lines["broker-a-2"][1:] == ["no", "answer", "-", "-", "-", "-", "2", "-", "-", "-", "-"]


@pytest.mark.parametrize("to", ["", "broker-a-1"])
def test_a_transfer_ends_when_another_leads(to: str) -> None:
    """Who, and in which term; the leader is asked once, and chooses if nobody else has."""
    with group() as made:
        done = made.run("transfer-leader", "-o", "json", *(["--to", to] if to else []))
        again = made.run("transfer-leader", "--to", "broker-a-1")
    assert done.exit_code == 0, done.output
    found = {"broker_group": "broker-a", "leader": "broker-a-1", "term": 4, "before": "broker-a-0"}
    assert (json.loads(done.stdout), made.asked_for) == (found, [to])
    assert (again.exit_code, again.stdout) == (0, "broker-a-1 leads broker-a already, in term 4.\n")


def test_a_transfer_that_fails_says_why() -> None:
    """The leader's own reason; another heir than the one asked for; nobody leads."""
    with group() as made:
        made.reason = "no other member is connected"
        refused = made.run("transfer-leader")
        made.reason, made.heir = "", "broker-a-2"
        other = made.run("transfer-leader", "--to", "broker-a-1")
        made.leader = ""
        none = made.run("transfer-leader", "-o", "json")
    assert (refused.exit_code, other.exit_code, none.exit_code) == (1, 1, 1)
    assert "broker-a-0 refuses: no other member is connected." in refused.stderr
    assert "broker-a-2 was elected in term 4, not broker-a-1" in other.stderr
    assert json.loads(none.stderr)["error"]["title"] == "Nobody leads now"


def test_a_transfer_to_nobody_that_is_known_is_asked_wrongly() -> None:
    """Exit code 2, and nothing was asked of the leader."""
    with group() as made:
        unknown = made.run("transfer-leader", "--to", "broker-z-9")
        other_group = made.run("transfer-leader", "--broker-group", "broker-z")
        assert made.asked_for == []
    assert (unknown.exit_code, other_group.exit_code) == (2, 2)
    assert "broker-a-0, broker-a-1, broker-a-2" in unknown.stderr


def test_brokers_are_found_without_a_name_server_and_silence_is_a_failure(tmp_path: Path) -> None:
    """mesh.json knows their ports; when none answers, exit code 1 names them."""
    with group() as made:
        rows = [
            {"name": name, "role": "broker", "pid": 0, "start_ticks": 0, "ports": {"http": int(at.rpartition(":")[2])}}
            for name, at in made.http.items()
        ]
        processes = [{**row, "state": "running", "restarts": 0, "reason": ""} for row in rows]
        (tmp_path / "mesh.json").write_text(json.dumps(mesh_document(processes=processes)))
        there = RUNNER.invoke(app, ["raft", "status", "-o", "json", "--data-dir", str(tmp_path)])
        made.dead |= set(made.http)
        gone = RUNNER.invoke(app, ["raft", "status", "--data-dir", str(tmp_path)])
    assert [row["role"] for row in json.loads(there.stdout)] == ["leader", "follower", "follower"]
    assert gone.exit_code == 1
    assert "broker-a-0, broker-a-1, broker-a-2 did not answer" in gone.stderr


def test_digests_show_which_broker_says_what() -> None:
    """A row a broker, also for one that does not answer."""
    with group() as made:
        made.digests = {"broker-a-0": "0000000a", "broker-a-1": "0000000b", "broker-a-2": "0000000c"}
        made.dead.add("broker-a-2")
        as_json, table = made.run("digests", "-o", "json"), made.run("digests")
    rows = {row["node"]: row for row in json.loads(as_json.stdout)}
    assert {name: (row["entry"], row["digest"], row["held"]) for name, row in rows.items()} == {
        "broker-a-0": (40, "0000000a", True),
        "broker-a-1": (40, "0000000b", True),
        "broker-a-2": (None, None, False),
    }
    assert rows["broker-a-0"]["disagreement"] == made.digests
    assert "held: no majority agrees" in table.stdout
    assert "no answer" in table.stdout


def test_an_operator_chooses_whose_state_holds() -> None:
    """Who leads is told, though it does not serve; without --yes nobody is asked where nobody can answer; a refusal says why."""
    with group() as made:
        made.digests = {"broker-a-0": "0000000a", "broker-a-1": "0000000b", "broker-a-2": "0000000c"}
        unsure = made.run("choose", "broker-a-1")
        done = made.run("choose", "broker-a-1", "--yes", "-o", "json")
        made.reason = "the nodes do not disagree"
        refused = made.run("choose", "broker-a-2", "--yes")
        unknown = made.run("choose", "broker-x", "--yes")
    assert (unsure.exit_code, unknown.exit_code) == (2, 2)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"broker_group": "broker-a", "chosen": "broker-a-1", "leader": "broker-a-0"}
    assert refused.exit_code == 1
    assert "the nodes do not disagree" in refused.output
    assert made.asked_for == ["broker-a-0: broker-a-1", "broker-a-0: broker-a-2"]


BLOCKED = {
    "index": 48211,
    "term": 3,
    "crc": "0badcafe",
    "error": "AssertionError: no delivery",
    "where": "leases.py:120",
    "release": "0.1.0 (state machine 1)",
    "commands": {"send": 2, "settle": 1},
    "asked": False,
    "peers": {},
}


def test_blocked_shows_who_cannot_apply_what() -> None:
    """And says so when everybody applies everything."""
    with group() as made:
        nobody = made.run("blocked")
        made.blocked = {"broker-a-0": BLOCKED, "broker-a-1": {**BLOCKED, "asked": True, "error": "", "where": ""}}
        made.dead.add("broker-a-2")
        as_json, table = made.run("blocked", "-o", "json"), made.run("blocked")
        status = made.run("status")
    assert nobody.stdout == "No broker is blocked.\n"
    rows = {row["node"]: row for row in json.loads(as_json.stdout)}
    assert {name: (row["entry"], row["asked"], row["says"]) for name, row in rows.items()} == {
        "broker-a-0": (48211, False, "blocked"),
        "broker-a-1": (48211, True, "waits for all to agree"),
        "broker-a-2": (None, False, "no answer"),
    }
    assert rows["broker-a-0"]["raised"] == "AssertionError: no delivery (leases.py:120)"
    assert (rows["broker-a-0"]["holds"], rows["broker-a-0"]["commands"]) == ("2 send, 1 settle", BLOCKED["commands"])
    assert "2 send, 1 settle" in table.stdout
    assert "leader, blocked at 48211" in status.stdout
    assert "follower, blocked at 48211" in status.stdout


def test_an_operator_passes_over_an_entry_knowingly() -> None:
    """What it holds is said before it is done, and without --yes nobody is asked where nobody can answer; a refusal says why."""
    with group() as made:
        made.blocked = dict.fromkeys(made.http, BLOCKED)
        unsure = made.run("pass-over", "48211")
        done = made.run("pass-over", "48211", "--yes", "-o", "json")
        told = made.run("pass-over", "48211", "--yes")
        back = made.run("pass-over", "48211", "--withdraw")
        made.reason = "'broker-a-2' has not said that it cannot apply entry 48211"
        refused = made.run("pass-over", "48211", "--yes")
        made.leader = ""
        nobody = made.run("pass-over", "48211", "--yes")
    assert unsure.exit_code == 2
    assert "2 send, 1 settle" in unsure.output
    facts = {"broker_group": "broker-a", "entry": 48211, "withdrawn": False, "leader": "broker-a-0"}
    assert json.loads(done.stdout) == facts
    assert told.stdout == "broker-a passes over entry 48211. Watch it with `ternmq raft blocked`.\n"
    assert back.stdout == "Entry 48211 of broker-a is tried again.\n"
    assert (refused.exit_code, nobody.exit_code) == (1, 1)
    assert "has not said that it cannot apply entry 48211" in refused.output
    documents = [{"index": 48211, "withdraw": withdrawn} for withdrawn in (False, False, True, False)]
    assert made.asked_for == [f"broker-a-0: {document}" for document in documents]
