"""A scripted proxy for reader tests: serves records from memory over real HTTP, with the faults a test asks for.

It speaks the two calls of the Spark source (offsets; pull as records) and nothing else. Faults are taken from `faults` one
per request, before the answer: a status with a problem document, or `drop` to break the connection.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from tern_wire.paths import HEADER_NEXT_OFFSET, RECORDS
from tern_wire.records.columns import record_starts
from tern_wire.records.properties import encode_properties
from tern_wire.records.write import encode_record, fill_in

_PULL = re.compile(r"/v1/topics/([^/]+)/queues/([^/]+)/messages")
_OFFSETS = re.compile(r"/v1/topics/([^/]+)/offsets")

Fault = tuple[int, dict[str, object]] | str


@dataclass(kw_only=True)
class Script:
    """What the server holds and does; a test changes it between requests. Every request's path lands in `seen`."""

    queues: dict[str, list[bytes]]
    topic: str = "orders"
    min_offset: int = 0
    page_rows_max: int = 1_000_000
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    # Called with the offset of each page, before it is read.
    before_page: Callable[[int], None] = lambda offset: None
    url: str = ""


def stored(
    number: int, body: bytes, properties: dict[str, str] | None = None, *, topic: str = "orders", queue: int = 0
) -> bytes:
    """One record as a reader gets it: offset *number*, position *number* x 1,000, born at second *number*."""
    pairs = {"UNIQ_KEY": f"id-{queue}-{number}", **(properties or {})}
    encoded = encode_properties(pairs.items())
    record = bytearray(encode_record(topic.encode(), queue, body, encoded, born_ms=number * 1_000))
    starts = record_starts(record)
    fill_in(record, starts, starts + number, starts + number * 1_000)
    return bytes(record)


@contextmanager
def record_server(script: Script) -> Iterator[Script]:
    """Serve *script* on a free loopback port; its `url` is set."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one write: in two, the second waits 40 ms for an acknowledgement of the first.
        wbufsize = -1

        def do_GET(self) -> None:
            script.seen.append(self.path)
            fault = script.faults.pop(0) if script.faults else None
            if fault == "drop":
                self.close_connection = True
                return
            if isinstance(fault, tuple):
                self._answer(fault[0], json.dumps(fault[1]).encode(), {"Content-Type": "application/problem+json"})
                return
            parts = urlsplit(self.path)
            if _OFFSETS.fullmatch(parts.path):
                self._offsets()
            elif found := _PULL.fullmatch(parts.path):
                self._page(unquote(found[2]), {name: int(value) for name, value in parse_qsl(parts.query)})

        def _offsets(self) -> None:
            queues = [
                {"queue": queue, "min_offset": script.min_offset, "max_offset": len(records)}
                for queue, records in script.queues.items()
            ]
            self._answer(200, json.dumps({"topic": script.topic, "queues": queues}).encode(), {})

        def _page(self, queue: str, query: dict[str, int]) -> None:
            start = query["offset"]
            script.before_page(start)
            if start < script.min_offset:
                problem = {"code": "offset-expired", "offset": start, "min_offset": script.min_offset}
                self._answer(410, json.dumps(problem).encode(), {})
                return
            end = min(query["end_offset"], len(script.queues[queue]), start + script.page_rows_max)
            records: list[bytes] = []
            size, at = 0, start
            while at < end and (not records or size + len(script.queues[queue][at]) <= query["max_bytes"]):
                records.append(script.queues[queue][at])
                size += len(records[-1])
                at += 1
            self._answer(200, b"".join(records), {"Content-Type": RECORDS, HEADER_NEXT_OFFSET: str(at)})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `seen`, not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
