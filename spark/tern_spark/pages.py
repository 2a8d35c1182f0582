"""Offsets and pages of records from proxies, for Spark's tasks: blocking HTTP/1.1, one connection.

The reader owns its connection, which it keeps alive, and its choice of proxy; one thread uses it,
and another may only abort it. A page is copied once, from the kernel. Reads have no effect. So
every failure that may be temporary (a broken connection, 503, 504, a queue whose new leader is not
ready) is repeated, at the next proxy, with doubling pauses. All other failures are raised as the
proxy's error.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from threading import Event
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import orjson

from tern_client.transport.calling import namespace_headers
from tern_client.transport.credentials import Credentials
from tern_client.transport.exchange import Request
from tern_client.transport.transport import tls_of
from tern_spark.options import ReadOptions
from tern_spark.ranges import QueueSpan
from tern_wire.errors import NotAcceptable, OutcomeUnknown, TernError, UnknownParameter, error_from
from tern_wire.limits import PULL_MESSAGES_MAX
from tern_wire.paths import HEADER_NEXT_OFFSET, JSON, RECORDS, offsets_path, pull_path, topic_path

T = TypeVar("T")

# Longer pauses that a proxy requests are cut to this: another proxy is tried instead.
_RETRY_AFTER_MAX_MS = 10_000
_PAUSE_MAX_MS = 5_000
# What a pull asks for where nobody needs bodies and properties.
_HEADS = {"fields": "heads"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Concatenated records of one queue, or their heads alone, and the offset behind the last one
    that was read.
    """

    records: bytes
    next_offset: int
    is_heads: bool = False


class ProxyPages:
    """The proxies at *endpoints* as a source of pages.

    A context manager; otherwise call close().
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_ms: int,
        retries: int,
        retry_interval_ms: int,
        first: int = 0,
        key_file: str | None = None,
        ca_file: str | None = None,
        namespace: str = "",
        selection: Sequence[tuple[str, str]] = (),
        heads_only: bool = False,
        pause_s: Callable[[float], object] | None = None,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._credentials = Credentials(self._endpoints, key_file, ca_file)
        self._tls = tls_of(self._endpoints, self._credentials)
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._retry_interval_ms = retry_interval_ms
        self._headers = dict(namespace_headers(namespace))
        self._selection = dict(selection)
        self._fields = dict(_HEADS) if heads_only else {}
        self._at = first % len(self._endpoints)
        self._is_aborted = Event()
        self._pause_s = pause_s or self._is_aborted.wait
        self._connection: HTTPConnection | None = None

    @classmethod
    def of(cls, options: ReadOptions, first: int = 0, *, heads_only: bool = False) -> Self:
        """Return a reader with these *options*; *first* spreads tasks over the endpoints;
        *heads_only*: nobody needs bodies and properties.
        """
        return cls(
            options.endpoints,
            timeout_ms=options.fetch_timeout_ms,
            retries=options.fetch_retries,
            retry_interval_ms=options.fetch_retry_interval_ms,
            first=first,
            key_file=options.key_file,
            ca_file=options.ca_file,
            namespace=options.namespace,
            selection=options.selection,
            heads_only=heads_only,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Make the call under way in another thread fail, and every further one; then close().

        A connection that is only being made is not ended before its time limit.
        """
        self._is_aborted.set()
        connection = self._connection
        opened = None if connection is None else connection.sock
        if opened is not None:
            with suppress(OSError):
                # Below TLS, whose own shutdown would let the other thread read encrypted bytes.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    def spans(self, topic: str) -> list[QueueSpan]:
        """Return the current offsets of every queue of *topic*, by one request."""

        def read(_: HTTPMessage, body: bytes) -> list[QueueSpan]:
            return [
                QueueSpan(
                    topic=topic,
                    queue=found["queue"],
                    min_offset=found["min_offset"],
                    max_offset=found["max_offset"],
                )
                for found in orjson.loads(body)["queues"]
            ]

        return self._get(offsets_path(topic), JSON, read)

    def created_ms(self, topic: str) -> int:
        """Return when *topic* was made, ms since 1970. TopicNotFound."""

        def read(_: HTTPMessage, body: bytes) -> int:
            return int(orjson.loads(body)["created_at"])

        return self._get(topic_path(topic), JSON, read)

    def page(self, topic: str, queue: str, offset: int, end_offset: int, size_max_bytes: int) -> Page:
        """Return records from *offset* on, up to *end_offset* (exclusive) or *size_max_bytes*.

        The next offset is always at least one further. OffsetExpired (field `min_offset`) when
        *offset* was deleted.
        """
        query = {
            "offset": offset,
            "end_offset": end_offset,
            "max_messages": PULL_MESSAGES_MAX,
            "max_bytes": size_max_bytes,
            **self._selection,
            **self._fields,
        }

        def read(headers: HTTPMessage, body: bytes) -> Page:
            if headers.get_content_type() != RECORDS:
                raise NotAcceptable(accept=RECORDS, supported=headers.get_content_type())
            is_heads = headers.get_param("fields") == _HEADS["fields"]
            page = Page(records=body, next_offset=int(headers[HEADER_NEXT_OFFSET]), is_heads=is_heads)
            if page.next_offset <= offset:
                # The range was frozen from committed offsets, so a queue that ends before it
                # belongs to a leader that is still applying: the same as no answer.
                raise OutcomeUnknown(
                    reason=f"queue {queue} of '{topic}' ends at {page.next_offset}, {end_offset} was planned"
                )
            return page

        try:
            return self._get(f"{pull_path(topic, quote(queue))}?{urlencode(query)}", RECORDS, read)
        except UnknownParameter:
            if not self._fields:
                raise
            # A proxy of the release before: whole records have the heads, too.
            self._fields = {}
            return self.page(topic, queue, offset, end_offset, size_max_bytes)

    def _get(self, path: str, accept: str, read: Callable[[HTTPMessage, bytes], T]) -> T:
        pause_ms = self._retry_interval_ms
        for left in range(self._retries, -1, -1):
            try:
                return self._get_once(path, accept, read)
            except (OSError, HTTPException, TernError) as error:
                self.close()
                is_final = isinstance(error, TernError) and not error.retryable
                if is_final or left == 0 or self._is_aborted.is_set():
                    error.add_note(f"GET {self._endpoints[self._at]}{path}, {self._retries - left} repeats before")
                    raise
                asked_ms = error.fields.get("retry_after_ms", 0) if isinstance(error, TernError) else 0
                self._at = (self._at + 1) % len(self._endpoints)
                self._pause_s(max(pause_ms, min(asked_ms, _RETRY_AFTER_MAX_MS)) / 1_000)
                pause_ms = min(2 * pause_ms, _PAUSE_MAX_MS)
        raise AssertionError("the last try returns or raises")

    def _get_once(self, path: str, accept: str, read: Callable[[HTTPMessage, bytes], T]) -> T:
        if self._is_aborted.is_set():
            raise ConnectionAbortedError("the reader was aborted")
        endpoint = self._endpoints[self._at]
        if self._connection is None:
            self._connection = self._connect(urlsplit(endpoint))
        request = self._credentials.applied(
            Request("GET", path, (("Accept", accept), *self._headers.items())), endpoint
        )
        self._connection.request("GET", path, headers=dict(request.headers))
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise _error_of(answer.status, answer.headers, body)
        return read(answer.headers, body)

    def _connect(self, parts: SplitResult) -> HTTPConnection:
        host, timeout_s = parts.hostname or "", self._timeout_ms / 1_000
        if parts.scheme == "https":
            return HTTPSConnection(host, parts.port or 443, timeout=timeout_s, context=self._tls)
        return HTTPConnection(host, parts.port or 80, timeout=timeout_s)


def _error_of(status: int, headers: HTTPMessage, body: bytes) -> TernError:
    """Return the error of an answer.

    An answer without a problem document, such as a gateway's, gets an error by its status.
    """
    problem: dict[str, Any] = {}
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(body)
        problem = found if isinstance(found, dict) else {}
    after_s = headers.get("Retry-After", "")
    if after_s.isdecimal():
        problem.setdefault("retry_after_ms", int(after_s) * 1_000)
    if "code" in problem:
        return error_from(str(problem["code"]), problem)
    if status in {429, 502, 503, 504}:
        return OutcomeUnknown(status=status, **problem)
    return TernError(status=status, body=body[:200].decode("utf-8", "replace"))
