"""A scripted proxy for tests of the sink: takes batches of MessagePack over real HTTP, with the faults a test asks for.

It stores a message once per idempotency key, and refuses a known key with another body, as a mesh does. Faults are taken
from `faults`, one per request: a status with a problem document, `drop` (nothing is stored), `lose` (stored, and no
answer), or the set of message numbers that are refused for now.

Batches are staged and published as by a mesh: a chunk once, a batch once and whole, with the attempts that are announced.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from tern_wire.limits import BATCH_MESSAGES_MAX, BATCH_SIZE_MAX_BYTES
from tern_wire.paths import MSGPACK
from tests.support.client.serving import serving

_BATCH = re.compile(r"/v1/topics/([^/]+)/messages/batch")
_STAGED = re.compile(
    r"/v1/topics/([^/]+)/staged/([^/]+)/(\d+)/(\d+)/(\d+)/(\d+)\?life=(\d+)ms(&accept_lost_history=true)?"
)
_PUBLICATION = re.compile(r"/v1/publications/([^/]+)/batches/(\d+)")
_QUERY = re.compile(r"/v1/publications/([^/]+)")
_REUSED = {"code": "idempotency-key-reused"}
_LATER = {"code": "no-leader", "broker_group": "broker-a"}

# A chunk: its topic and messages.
Chunk = tuple[str, list[dict[str, Any]]]
Fault = tuple[int, dict[str, object]] | str | set[int]


@dataclass(kw_only=True)
class Store:
    """What the server holds and does. `topics`: messages in the order in which they were stored; `sizes`: messages of each request."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    # Called with the messages of each request that stores or stages, before anything is done.
    before_request: Callable[[list[dict[str, Any]]], None] = lambda messages: None
    url: str = ""
    # What queries have published last, and what they have staged: by batch, partition and attempt, the chunks.
    published: dict[str, int] = field(default_factory=dict)
    published_rows: dict[str, int] = field(default_factory=dict)
    stages: dict[str, dict[tuple[int, int, int], dict[int, Chunk]]] = field(default_factory=dict)
    publications: list[dict[str, Any]] = field(default_factory=list)
    _keys: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # Attempts at one task may come at one time.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bodies(self, topic: str = "orders") -> list[bytes]:
        """Bodies of *topic*."""
        return [message["body"] for message in self.topics.get(topic, [])]

    def stage(self, topic: str, query: str, place: tuple[int, int, int, int], messages: list[dict[str, Any]]) -> Any:
        """Stage a chunk: its answer, or the refusal."""
        batch, partition, attempt, chunk = place
        if batch <= self.published.get(query, -1):
            return {"code": "batch-published", "query": query, "batch": batch, "last": self.published[query]}
        chunks = self.stages.setdefault(query, {}).setdefault((batch, partition, attempt), {})
        if chunks.get(chunk, (topic, messages)) != (topic, messages):
            return {"code": "stage-chunk-differs", "chunk": chunk, "partition": partition, "attempt": attempt}
        chunks[chunk] = topic, messages
        return {"rows": len(messages)}

    def publish(self, query: str, batch: int, asked: dict[str, Any]) -> Any:
        """Publish a batch: its answer, or the refusal."""
        self.publications.append({"query": query, "batch": batch, **asked})
        stages = self.stages.get(query, {})
        rows = 0
        if batch > self.published.get(query, -1):
            found = [
                (stages.get((batch, each["partition"], each["attempt"]), {}), each["rows"]) for each in asked["stages"]
            ]
            if any(sum(len(messages) for _, messages in chunks.values()) != rows for chunks, rows in found):
                return {
                    "code": "stage-unknown",
                    "query": query,
                    "batch": batch,
                    "partition": 0,
                    "attempt": 0,
                    "actual": 0,
                    "expected": 1,
                }
            for chunks, count in found:
                rows += count
                for number in sorted(chunks):
                    topic, messages = chunks[number]
                    self.topics.setdefault(topic, []).extend(messages)
            self.published[query], self.published_rows[query] = batch, rows
            self.stages[query] = {key: chunks for key, chunks in stages.items() if key[0] > batch}
        return self.publication(query)

    def publication(self, query: str) -> Any:
        """The last batch of a query."""
        if query not in self.published:
            return {"code": "publication-not-found", "query": query}
        return {"query": query, "batch": self.published[query], "rows": self.published_rows[query]}

    def abandon(self, query: str, batch: int) -> dict[str, Any]:
        """Drop the stages of a batch."""
        stages = self.stages.get(query, {})
        self.stages[query] = {key: chunks for key, chunks in stages.items() if key[0] != batch}
        return {"stages": len(stages) - len(self.stages[query])}

    def keep(self, topic: str, messages: list[dict[str, Any]], refused: set[int]) -> list[dict[str, Any]]:
        """Store *messages* but for the *refused* ones; the results."""
        with self._lock:
            return self._keep(topic, messages, refused)

    def _keep(self, topic: str, messages: list[dict[str, Any]], refused: set[int]) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for index, message in enumerate(messages):
            known = self._keys.get((topic, message.get("idempotency_key", "")))
            error = _LATER if index in refused else _REUSED if known not in {None, message["body"]} else None
            if error is None and known is None:
                self.topics.setdefault(topic, []).append(message)
                if "idempotency_key" in message:
                    self._keys[topic, message["idempotency_key"]] = message["body"]
            stored = {"message_id": "0" * 32, "queue": "broker-a:0", "offset": 0, "born_at": 0}
            results.append({"index": index, **({"error": error} if error else stored)})
        return results


@contextmanager
def batch_server() -> Iterator[Store]:
    """Serve a Store on a free loopback port; its `url` is set."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            messages = msgspec.msgpack.decode(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            assert 0 < len(messages) <= BATCH_MESSAGES_MAX
            found = _STAGED.fullmatch(self.path)
            assert found is not None, self.path
            store.sizes.append(len(messages))
            store.before_request(messages)
            numbers = [int(found[number]) for number in range(3, 7)]
            place = numbers[0], numbers[1], numbers[2], numbers[3]
            self._do(lambda: store.stage(found[1], found[2], place, messages))

        def do_GET(self) -> None:
            found = _QUERY.fullmatch(self.path)
            assert found is not None, self.path
            self._do(lambda: store.publication(found[1]))

        def do_DELETE(self) -> None:
            found = _PUBLICATION.fullmatch(self.path)
            assert found is not None, self.path
            self._do(lambda: store.abandon(found[1], int(found[2])))

        def _do(self, work: Callable[[], Any]) -> None:
            """Answer with what *work* returns, a document or a refusal, unless there is a fault."""
            store.headers = dict(self.headers.items())
            fault = store.faults.pop(0) if store.faults else None
            if isinstance(fault, tuple):
                self._answer(fault[0], json.dumps(fault[1]).encode(), "application/problem+json")
                return
            told = {} if fault == "drop" else work()
            if isinstance(fault, str):
                self.close_connection = True
            elif "code" in told:
                self._answer(409, json.dumps(told).encode(), "application/problem+json")
            else:
                self._answer(200, json.dumps(told).encode(), "application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if publication := _PUBLICATION.fullmatch(self.path):
                self._do(lambda: store.publish(publication[1], int(publication[2]), json.loads(body)))
                return
            messages = msgspec.msgpack.decode(body)["messages"]
            assert self.headers["Content-Type"] == MSGPACK
            assert 0 < len(messages) <= BATCH_MESSAGES_MAX and len(body) <= BATCH_SIZE_MAX_BYTES
            found = _BATCH.fullmatch(self.path)
            assert found is not None
            store.sizes.append(len(messages))
            store.headers = dict(self.headers.items())
            store.before_request(messages)
            fault = store.faults.pop(0) if store.faults else None
            if isinstance(fault, tuple):
                self._answer(fault[0], json.dumps(fault[1]).encode(), "application/problem+json")
                return
            if fault != "drop":
                results = store.keep(found[1], messages, fault if isinstance(fault, set) else set())
                failed = sum("error" in result for result in results)
                answer = msgspec.msgpack.encode({"results": results, "failed": failed})
                if fault != "lose":
                    self._answer(207 if failed else 200, answer, MSGPACK)
                    return
            self.close_connection = True

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with serving(Handler) as store.url:
        yield store
