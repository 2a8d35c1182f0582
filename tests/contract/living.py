"""Names and ids that are there: a request with a made-up one would seldom get behind the first check."""

import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from schemathesis import Case

from tern_wire.paths import (
    HEADER_NAMESPACE,
    READ_LEASES_PATH,
    ack_path,
    batch_path,
    begin_path,
    group_path,
    messages_path,
    producer_group_path,
    receive_path,
    topic_path,
)

TOPICS = {"orders": "MIXED", "bills": "FIFO", "later": "DELAY", "halves": "TRANSACTION", "plain": "NORMAL"}
GROUPS, PRODUCER_GROUPS, PRINCIPALS = ("billing", "shipping", "audit"), ("shop", "till"), ("alice", "bob")
QUERIES = ("daily-delays", "hourly")
PERMISSIONS = ("rw", "rw", "rw", "rw", "r", "w", "none")
KEPT_MAX = 50
# How often a name that is there stands in place of a generated one.
LIVING_SHARE = 0.8
# A long poll is cut to this: what it waits for is not what is looked at here.
WAIT, SHORT_SHARE = "20ms", 0.98
# The operation whose answer ends with its client, or as its parameters say.
ENDLESS = "tailTopic"


class Living:
    """What is there at *url*. Owner of what it remembers: the run."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        self._rng = rng
        self.ids: dict[str, list[str]] = {
            name: [] for name in ("message_id", "recall_handle", "transaction_id", "kid", "task", "lease")
        }
        self.handles: list[str] = []

    def make(self) -> None:
        """Everything that may be gone, or whose ids have been used up."""
        for topic, kind in TOPICS.items():
            self._http.put(topic_path(topic), json={"type": kind, "queues": 2})
            self._http.patch(topic_path(topic), json={"permission": self._rng.choice(PERMISSIONS)})
        for group in GROUPS:
            self._http.put(group_path(group), json={"fifo": group == "shipping"})
            settings = {"consume": self._rng.random() < LIVING_SHARE, "broadcast": self._rng.random() > LIVING_SHARE}
            self._http.patch(group_path(group), json=settings)
        for name in PRODUCER_GROUPS:
            self._http.put(producer_group_path(name))
        for name in PRINCIPALS:
            self._http.put(f"/v1/principals/{name}")
        with suppress(KeyError, ValueError, IndexError):
            self._refresh()

    def _refresh(self) -> None:
        sent = self._http.post(batch_path("orders"), json={"messages": [{"body": "x", "keys": ["k"]}] * 8}).json()
        self._keep("message_id", (row["message_id"] for row in sent["results"]))
        self._keep(
            "recall_handle", [self._http.post(messages_path("orders"), params={"delay": "1h"}).json()["recall_handle"]]
        )
        begun = self._http.post(begin_path("orders"), params={"producer_group": "shop"}, content=b"x").json()
        self._keep("transaction_id", [begun["transaction_id"]])
        self._keep("kid", [self._http.post("/v1/principals/alice/keys", json={}).json()["kid"]])
        got = self._http.post(receive_path("orders", "billing"), json={"max_messages": 8, "invisible": "1h"}).json()
        self.handles = [message["receipt_handle"] for message in got["messages"]] + self.handles[:KEPT_MAX]
        task = self._http.post(f"{group_path('billing')}/dlq/redrive", json={"all": True}).json()
        self._keep("task", [task["task"]])
        lease = self._http.post(READ_LEASES_PATH, json={"topics": [{"topic": "orders"}], "for": "1m"}).json()
        self._keep("lease", [lease["lease"]])
        if self.handles:
            self._http.post(ack_path("orders", "billing"), json={"receipt_handles": [self.handles[-1]]})

    def _keep(self, kind: str, found: Any) -> None:
        self.ids[kind] = [*found, *self.ids[kind]][:KEPT_MAX]

    # Into a case ------------------------------------------------------------------------------------------------
    def put_into(self, case: Case[Any]) -> None:
        """Living names in place of most of the generated ones, waits that end, and confirmations that confirm."""
        names = case.path_parameters or {}
        for name in names:
            if self._rng.random() < LIVING_SHARE and (found := self._one(name)):
                names[name] = found
        query = case.query or {}
        for name in {each.name for each in case.operation.iter_parameters()} & {"wait", "timeout"}:
            if self._rng.random() < SHORT_SHARE:
                case.query = query = {**query, name: WAIT}
        if case.operation.definition.raw["operationId"] == ENDLESS:
            # It would never end: what it reads is not what is looked at here.
            case.query = query = {**query, "idle": WAIT}
            if self._rng.random() < LIVING_SHARE:
                query.pop("last_event_id", None)
        for name in ("topic", "producer_group"):
            if name in query and self._rng.random() < LIVING_SHARE:
                query[name] = self._one(name)
        if "confirm" in query and self._rng.random() < 0.5:
            query["confirm"] = next(iter(names.values()), "")
        if case.headers and self._rng.random() < LIVING_SHARE:
            # Nothing of what is there is in a namespace.
            case.headers.pop(HEADER_NAMESPACE, None)
        self._fill(case.body)

    def _fill(self, body: Any) -> None:
        if isinstance(body, list):
            for item in body:
                self._fill(item)
        if not isinstance(body, dict):
            return
        for name, value in body.items():
            if name == "wait" and self._rng.random() < SHORT_SHARE:
                body[name] = WAIT
            elif name in {"topic", "producer_group"} and isinstance(value, str) and self._rng.random() < LIVING_SHARE:
                body[name] = self._one(name)
            elif name == "receipt_handle" and self.handles and self._rng.random() < LIVING_SHARE:
                body[name] = self._rng.choice(self.handles)
            elif name == "receipt_handles" and self.handles and isinstance(value, list) and value:
                value[0] = self._rng.choice(self.handles)
            else:
                self._fill(value)

    def _one(self, name: str) -> str:
        known: dict[str, Callable[[], Any]] = {
            "topic": lambda: tuple(TOPICS),
            "group": lambda: GROUPS,
            "producer_group": lambda: PRODUCER_GROUPS,
            "principal": lambda: PRINCIPALS,
            "queue": lambda: ("broker-a:0", "broker-a:1"),
            "broker_group": lambda: ("broker-a",),
            "member": lambda: ("worker-1",),
            "query": lambda: QUERIES,
            **dict.fromkeys(("batch", "partition", "attempt", "chunk"), lambda: ("0", "1", "2")),
            "correlation_id": lambda: ("invoice-7", uuid.UUID(int=self._rng.getrandbits(128)).hex),
        }
        found = known[name]() if name in known else self.ids.get(name, ())
        return str(self._rng.choice(found)) if found else ""

    def close(self) -> None:
        """Close its connections."""
        self._http.close()
