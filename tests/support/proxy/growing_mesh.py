"""A proxy and a name server for tests of the command line: topics with placements that move as a mesh's do, and broker groups that empty when a test says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tern_wire.errors import BrokerGroupNotFound, TernError, TopicNotFound
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said

LEFT: dict[str, Any] = {
    **dict.fromkeys(("topics", "placed", "moving", "unread", "in_flight", "scheduled", "unclaimed"), 0),
    "transactions": 0,
    "dead_letters": 0,
    "topics_left": [],
    "dead_letters_left": [],
}


@dataclass(kw_only=True)
class Placed:
    """One topic. *until_ms*: when its move may end."""

    groups: list[str]
    before: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    epoch: int = 1
    until_ms: int = 0

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way."""
        return bool(self.before)


class GrowingMesh:
    """What the commands talk to. *moves_end_ms*: `moving_until` of every move; 0: a repeat ends it. Owner: one test."""

    def __init__(self) -> None:
        self.groups = {
            "broker-a": {"leader": "broker-a-0", "writable": True},
            "broker-b": {"leader": "broker-b-0", "writable": True},
        }
        self.topics: dict[tuple[str, str], Placed] = {}
        self.refusals: dict[tuple[str, str], TernError] = {}
        self.moves_end_ms = 0
        # What is left in a broker group beside topics, one answer after the other; the last one stays.
        self.left: list[dict[str, Any]] = [{}]
        self.events: list[str] = []
        # Whether the proxy still believes that everything may be written.
        self.hears_late = False
        # What keeps every move, "" for nothing: then a repeat ends it.
        self.keeps = ""
        self.proxy = self.name_server = ""

    def add(self, topic: str, *groups: str, namespace: str = "", **more: Any) -> Placed:
        """A topic that is placed there."""
        placed = self.topics[namespace, topic] = Placed(groups=list(groups), hosts=set(groups), **more)
        return placed

    def document(self, name: tuple[str, str]) -> dict[str, Any]:
        """A placement."""
        placed = self.topics[name]
        return {
            "topic": name[1],
            "epoch": placed.epoch,
            "broker_groups": placed.groups,
            "before": placed.before,
            "moving_until": placed.until_ms,
            "is_moving": placed.is_moving,
            "hosts": sorted(placed.hosts),
        }

    # Answers ---------------------------------------------------------------------------------------------------
    def answer(self, asked: Asked) -> Reply:
        """Of the proxy."""
        split = urlsplit(asked.path)
        match asked.method, split.path.split("/")[2:]:
            case "GET", ["cluster"]:
                node = {"link": "127.0.0.1:1", "connected": True, "raft": None}
                more = {
                    "term": 3,
                    "group_size": 3,
                    "nodes": {"n0": node, "n1": node, "n2": {**node, "connected": False}},
                }
                return said({"broker_groups": {name: {**group, **more} for name, group in self.groups.items()}})
            case "POST", ["broker-groups", name, "join"]:
                self.events.append(f"join {name}")
                return said({"broker_group": name, "groups": 4, "producer_groups": 1})
            case "GET", ["broker-groups", name]:
                if name not in self.groups:
                    return refused(BrokerGroupNotFound(broker_group=name, known=", ".join(self.groups)))
                return said(self._left(name))
            case "GET", ["broker-groups", name, "topics"]:
                return said(self._listed(name, parse_qs(split.query)))
            case "GET" | "PUT", ["topics", topic, "placement"]:
                return self._placement(asked, (asked.headers.get("mq-namespace", ""), topic))
        return said({}, 404)

    def permit(self, asked: Asked) -> Reply:
        """Of the name server."""
        name = asked.path.split("/")[3]
        self.events.append(f"{'restore' if asked.document['writable'] else 'wipe'} {name}")
        self.groups[name]["writable"] = asked.document["writable"]
        return said({"broker_group": name, "writable": asked.document["writable"], "topics": len(self.topics)})

    def _left(self, name: str) -> dict[str, Any]:
        told = {**LEFT, **(self.left.pop(0) if len(self.left) > 1 else self.left[0])}
        placed = sum(name in each.groups for each in self.topics.values())
        moving = sum(name in each.before and name not in each.groups for each in self.topics.values())
        writable = self.hears_late or self.groups[name]["writable"]
        counts = {
            "placed": placed,
            "moving": moving,
            "topics": sum(name in each.hosts for each in self.topics.values()),
        }
        is_empty = not any(
            (placed, moving, *(told[each] for each in ("unread", "scheduled", "transactions", "dead_letters")))
        )
        facts = {"broker_group": name, "writable": writable, "leader": self.groups[name]["leader"]}
        return {**told, **facts, **counts, "is_drained": is_empty and not writable}

    def _listed(self, name: str, query: dict[str, list[str]]) -> dict[str, Any]:
        rows = [
            {"namespace": namespace, **self.document((namespace, topic))}
            for (namespace, topic), placed in sorted(self.topics.items())
            if (name in {*placed.hosts, *placed.groups, *placed.before}) is (query.get("which") == ["here"])
        ]
        # Two pages, so that whoever reads one only is found out.
        at = 1 if query.get("cursor") else 0
        return {"topics": rows[1:] if at else rows[:1], "next_cursor": "c" if not at and len(rows) > 1 else ""}

    def _placement(self, asked: Asked, name: tuple[str, str]) -> Reply:
        if name not in self.topics:
            return refused(TopicNotFound(topic=name[1]))
        placed = self.topics[name]
        if asked.method == "GET":
            return said(self.document(name))
        if name in self.refusals:
            return refused(self.refusals[name])
        wanted = asked.document["broker_groups"]
        self.events.append(f"place {'/'.join(part for part in name if part)} {','.join(wanted)}")
        changed = wanted != placed.groups
        if changed:
            placed.before, placed.groups, placed.until_ms = placed.groups, wanted, self.moves_end_ms
            placed.hosts |= set(wanted)
            placed.epoch += 1
        elif not self.keeps:
            placed.before, placed.until_ms = [], 0
        return said({**self.document(name), "changed": changed, "left": self.keeps if not changed else ""})


@contextmanager
def growing_mesh() -> Iterator[GrowingMesh]:
    """One that runs; its URLs are in `proxy` and `name_server`."""
    mesh = GrowingMesh()
    with blocking_proxy(mesh.answer) as proxy, blocking_proxy(mesh.permit) as name_server:
        mesh.proxy, mesh.name_server = proxy.url, name_server.url
        yield mesh
