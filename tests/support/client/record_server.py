"""A scripted proxy for reader tests: serves records from memory over real HTTP, with the faults a test asks for.

It speaks the calls of the Spark source (topics, offsets, a group's offsets, plans, leases; pull as records) and nothing else. Faults are taken from `faults` one
per request, before the answer: a status with a problem document, or `drop` to break the connection.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tern_wire.paths import HEADER_NEXT_OFFSET, READ_LEASES_PATH, RECORDS
from tern_wire.records.columns import heads_of, record_starts
from tern_wire.records.properties import encode_properties
from tern_wire.records.write import encode_record, fill_in
from tests.support.client.serving import serving

_PULL = re.compile(r"/v1/topics/([^/]+)/queues/([^/]+)/messages")
_OFFSETS = re.compile(r"/v1/topics/([^/]+)/offsets")
_TOPIC = re.compile(r"/v1/topics/([^/]+)")
_GROUP, _GROUP_OFFSETS = re.compile(r"/v1/groups/([^/]+)"), re.compile(r"/v1/groups/([^/]+)/offsets")

Fault = tuple[int, dict[str, object]] | str


@dataclass(kw_only=True)
class Script:
    """What the server holds and does; a test changes it between requests. Every other request's path lands in `seen`."""

    queues: dict[str, list[bytes]]
    topic: str = "orders"
    min_offset: int = 0
    page_rows_max: int = 1_000_000
    # Whether a pull may ask for heads alone; a proxy of the release before knows nothing of it.
    knows_heads: bool = True
    # Whether a filter passes over every message.
    selects_nothing: bool = False
    # When the topic was made; 0: it does not exist.
    created_ms: int = 1
    # Committed offsets by group.
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    # What another query commits for a group in front of the next commit.
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    # The ranges of each read lease, which lands here and not in `seen`.
    leased: list[list[dict[str, Any]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
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
            query = dict(parse_qsl(parts.query))
            if _OFFSETS.fullmatch(parts.path):
                self._tell({"topic": script.topic, "queues": self._rows(query.get("time"))})
            elif found := _PULL.fullmatch(parts.path):
                self._pull(unquote(found[2]), query)
            elif found := _GROUP_OFFSETS.fullmatch(parts.path):
                self._group_offsets(found[1])
            elif parts.path == "/v1/topics":
                self._tell({"topics": [{"topic": script.topic}] if script.created_ms else [], "next_cursor": ""})
            elif _TOPIC.fullmatch(parts.path) and script.created_ms:
                self._tell({"topic": script.topic, "created_at": script.created_ms, "offsets": self._rows(None)})
            else:
                self._refuse(404, code="topic-not-found", topic=script.topic)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            if self.path == READ_LEASES_PATH:
                self._lease(body)
                return
            script.seen.append(self.path)
            asked = body["topics"][0]
            rows = []
            for queue, begin in asked["begin"].items():
                size, at = 0, begin
                for record in script.queues[queue][begin : asked["end"][queue]]:
                    if size + len(record) > asked.get("budget_bytes", {}).get(queue, 1 << 60):
                        break
                    size, at = size + len(record), at + 1
                rows.append({"queue": queue, "measured_to": at, "size_bytes": size})
            self._tell({"topics": [{"topic": asked["topic"], "queues": rows}]})

        def do_DELETE(self) -> None:
            script.ended.append(unquote(self.path.rpartition("/")[2]))
            self._answer(204, b"", {})

        def do_PUT(self) -> None:
            script.seen.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            if found := _GROUP.fullmatch(self.path):
                self._tell({"group": found[1], "created": script.groups.setdefault(found[1], {}) == {}})
            elif (found := _GROUP_OFFSETS.fullmatch(self.path)) and found[1] in script.groups:
                group, expected = script.groups[found[1]], body.get("expected", {})
                group |= script.others.pop(found[1], {})
                moved = [queue for queue, offset in expected.items() if group.get(queue) != offset]
                if moved:
                    self._refuse(409, code="offset-moved", queue=moved[0], actual=group[moved[0]], expected=-1)
                    return
                group |= body["offsets"]
                self._tell({"group": found[1], "topic": body["topic"], "offsets": body["offsets"]})
            else:
                self._refuse(404, code="group-not-found", group=self.path)

        def _lease(self, body: dict[str, Any]) -> None:
            script.leased.append(body["topics"])
            begin = min(body["topics"][0]["begin"].values())
            if begin < script.min_offset:
                self._refuse(410, code="offset-expired", offset=begin, min_offset=script.min_offset)
            else:
                self._tell({"lease": f"lease-{len(script.leased)}", "leased_until": 1 << 50, "topics": []})

        def _group_offsets(self, group: str) -> None:
            if group in script.groups:
                self._tell({"group": group, "topic": script.topic, "offsets": script.groups[group]})
            else:
                self._refuse(404, code="group-not-found", group=group)

        def _rows(self, time: str | None) -> list[dict[str, object]]:
            rows: list[dict[str, object]] = []
            for queue, records in script.queues.items():
                end = len(records)
                rows.append({"queue": queue, "min_offset": script.min_offset, "max_offset": end})
                if time is not None:  # record N was visible from second N on
                    rows[-1]["offset_at"] = max(script.min_offset, min(end, -(-int(time) // 1_000)))
            return rows

        def _tell(self, document: dict[str, object]) -> None:
            self._answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

        def _refuse(self, status: int, **problem: object) -> None:
            self._answer(status, json.dumps(problem).encode(), {"Content-Type": "application/problem+json"})

        def _pull(self, queue: str, query: dict[str, str]) -> None:
            fields = query.pop("fields", "")
            if fields and not script.knows_heads:
                self._refuse(400, code="unknown-parameter", parameter="fields")
                return
            self._page(queue, {name: int(value) for name, value in query.items()}, is_heads=bool(fields))

        def _page(self, queue: str, query: dict[str, int], *, is_heads: bool) -> None:
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
            content, kind = b"" if script.selects_nothing else b"".join(records), RECORDS
            if is_heads:
                content, kind = heads_of(content), f"{RECORDS}; fields=heads"
            self._answer(200, content, {"Content-Type": kind, HEADER_NEXT_OFFSET: str(at)})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `seen`, not on stderr."""

    with serving(Handler) as script.url:
        yield script
