"""A scripted proxy for tests of the sink: takes batches of MessagePack over real HTTP, with the faults a test asks for.

It stores a message once per idempotency key, and refuses a known key with another body, as a mesh does. Faults are taken
from `faults`, one per request: a status with a problem document, `drop` (nothing is stored), `lose` (stored, and no
answer), or the set of message numbers that are refused for now.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from tern_wire.limits import BATCH_MESSAGES_MAX, BATCH_SIZE_MAX_BYTES
from tern_wire.paths import MSGPACK
from tests.support.client.serving import serving

_BATCH = re.compile(r"/v1/topics/([^/]+)/messages/batch")
_REUSED = {"code": "idempotency-key-reused"}
_LATER = {"code": "no-leader", "broker_group": "broker-a"}

Fault = tuple[int, dict[str, object]] | str | set[int]


@dataclass(kw_only=True)
class Store:
    """What the server holds and does. `topics`: messages in the order in which they were stored; `sizes`: messages of each request."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""
    _keys: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def bodies(self, topic: str = "orders") -> list[bytes]:
        """Bodies of *topic*."""
        return [message["body"] for message in self.topics.get(topic, [])]

    def keep(self, topic: str, messages: list[dict[str, Any]], refused: set[int]) -> list[dict[str, Any]]:
        """Store *messages* but for the *refused* ones; the results."""
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

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            messages = msgspec.msgpack.decode(body)["messages"]
            assert self.headers["Content-Type"] == MSGPACK
            assert 0 < len(messages) <= BATCH_MESSAGES_MAX and len(body) <= BATCH_SIZE_MAX_BYTES
            found = _BATCH.fullmatch(self.path)
            assert found is not None
            store.sizes.append(len(messages))
            store.headers = dict(self.headers.items())
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
