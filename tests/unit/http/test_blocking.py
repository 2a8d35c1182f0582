"""http.client with a pool: connections that are used again, cut ones that are not, bodies of an announced size."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tern_http.blocking import BlockingPool, connection_to, read_body


class Handler(BaseHTTPRequestHandler):
    """`/N` has N bytes, `/short` fewer than it announces, `/unknown` says nothing of its size."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """One answer."""
        name = self.path.strip("/")
        self.send_response(200)
        if name == "unknown":
            self.send_header("Connection", "close")
            self.end_headers()
        elif name == "short":
            self.send_header("Content-Length", "9")
            self.end_headers()
            self.wfile.write(b"x")
            self.close_connection = True
        else:
            self.send_header("Content-Length", name)
            self.end_headers()
            self.wfile.write(bytes(int(name)))

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """Counts the connections that were made, and can close them."""

    daemon_threads = True
    made = 0

    def process_request(self, request: object, client_address: object) -> None:
        """One more."""
        self.made += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving() -> Iterator[tuple[Server, str]]:
    """A server, and its URL."""
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(connection: http.client.HTTPConnection, path: str, size_max_bytes: int = 1_000) -> bytearray:
    """The body of *path*."""
    connection.request("GET", path)
    return read_body(connection.getresponse(), size_max_bytes=size_max_bytes)


def test_a_connection_is_used_again_until_it_is_cut() -> None:
    """A new one takes its place; after `close` none is kept."""
    with serving() as (server, url):
        pool = BlockingPool()
        for _ in range(3):
            connection = pool.take(url, 30)
            assert len(get(connection, "/100")) == 100
            pool.keep(url, connection)
        assert server.made == 1
        connection.sock.shutdown(2)
        connection = pool.take(url, 30)
        assert connection.sock is None
        assert len(get(connection, "/0")) == 0
        assert server.made == 2
        pool.close()
        pool.keep(url, connection)
        assert connection.sock is None


@pytest.mark.parametrize("path", ["/1001", "/short", "/unknown"])
def test_a_body_of_another_size_is_none(path: str) -> None:
    """Too large, cut off, or without a size."""
    with serving() as (_, url):
        connection = connection_to(url, timeout_s=30, tls=None)
        with pytest.raises(ValueError, match="an answer"):
            get(connection, path)
        connection.close()


def test_the_port_of_a_scheme_is_its_own() -> None:
    """80 and 443, unless the URL has another."""
    made = [connection_to(url, timeout_s=1, tls=None) for url in ("http://one", "https://one", "http://[::1]:81/x")]
    assert [(each.host, each.port) for each in made] == [("one", 80), ("one", 443), ("::1", 81)]
    assert isinstance(made[1], http.client.HTTPSConnection)
