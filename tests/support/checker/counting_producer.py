"""A producer's app for tests with real checkers: answers each check after a while, and counts the callbacks of every attempt.

Servers of its own, one a port, since a checker calls one host and port four times at a time. Owner of the counts: this object; its threads
share them under a lock.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tern_wire.checks.answers import answer_signature
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE
from tests.support.checker.scripted_producer import SECRET


class CountingProducer:
    """*answer*: what is said to a check's `data`: commit, rollback or unknown; it takes *delay_s*. Its producer groups have SECRET."""

    def __init__(self, answer: Callable[[dict[str, Any]], str], *, delay_s: float) -> None:
        self._answer, self._delay_s = answer, delay_s
        self._lock = threading.Lock()
        # (transaction id, attempt) -> callbacks that came.
        self.asked: Counter[tuple[str, int]] = Counter()
        self.under_way = 0
        # Nobody sets it: an answer takes its time.
        self._never = threading.Event()

    def handle(self, body: bytes) -> bytes:
        """One callback."""
        data = json.loads(body)["data"]
        with self._lock:
            self.asked[data["transaction_id"], data["attempt"]] += 1
            self.under_way += 1
        self._never.wait(self._delay_s)
        with self._lock:
            self.under_way -= 1
        return json.dumps({"state": self._answer(data)}).encode()

    @contextmanager
    def serving(self, ports: int) -> Iterator[list[str]]:
        """URLs of so many servers, for the length of a block."""
        producer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                answer = producer.handle(self.rfile.read(int(self.headers["Content-Length"])))
                nonce, transaction_id = self.headers[HEADER_CHECK_NONCE], self.headers["webhook-id"]
                # Its checker may be dead by now.
                with suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer)))
                    signature = answer_signature(SECRET, nonce, transaction_id, answer)
                    self.send_header(HEADER_CHECK_SIGNATURE, signature)
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Nothing: the counts say it all."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A checker that dies resets its connections."""

        servers = [Server(("127.0.0.1", 0), Handler) for _ in range(ports)]
        threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield [f"http://127.0.0.1:{server.server_address[1]}/checks" for server in servers]
        finally:
            for server, thread in zip(servers, threads, strict=True):
                server.shutdown()
                thread.join()
                server.server_close()
