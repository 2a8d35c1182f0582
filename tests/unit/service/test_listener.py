"""Who is served over HTTP and over TLS, who is not and what that costs; certificates that change under load."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from tern_accept import OURS, Descriptors
from tern_accept.descriptors import SHORT_BELOW
from tern_security.peer_identity import ROLES
from tern_security.tls import ClusterTls
from tern_service import install_problems, open_socket, serve
from tern_service.connections.bounds import Bounds
from tern_service.listener import Listener
from tern_service.process_security import peer_of_request, require_broker, require_operator
from tests.support.loops import BOTH_LOOPS
from tests.support.pki.cluster_pki import Pki


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Both loops: their TLS is not the same code."""
    return request.param


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A cluster."""
    return Pki(tmp_path / "cluster")


def sample_app() -> FastAPI:
    """Says who asks."""
    app = FastAPI()
    install_problems(app)

    @app.get("/")
    async def who(request: Request) -> str:
        peer = peer_of_request(request)
        return peer.uri if peer is not None else "nobody"

    @app.post("/operate")
    async def operate(request: Request) -> None:
        require_operator(request)

    @app.post("/register/{node}")
    async def register(request: Request, node: str) -> None:
        require_broker(request, node)

    return app


@contextlib.asynccontextmanager
async def serving(tls: ClusterTls | None, roles: frozenset[str] | None = ROLES) -> AsyncIterator[str]:
    """The sample application; yields its URL."""
    sock = open_socket("127.0.0.1", 0, "--port")
    stop = asyncio.Event()
    context = None if tls is None else tls.server(roles)
    refused = (lambda _: None) if tls is None else tls.refused
    task = asyncio.create_task(serve(sample_app(), sock, stop=stop, tls=context, on_refusal=refused))
    yield f"{'http' if tls is None else 'https'}://127.0.0.1:{sock.getsockname()[1]}"
    stop.set()
    await asyncio.wait_for(task, 30)


def client(url: str, tls: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    """A client of *url*."""
    return httpx.AsyncClient(base_url=url, verify=tls, trust_env=False, timeout=10)


async def test_a_request_tells_whose_certificate_asks(pki: Pki) -> None:
    """By the certificate's URI, not by anything that the request says."""
    tls = pki.client("proxy", "proxy-0", "broker")
    async with serving(pki.tls("broker", "broker-a-0")) as url, client(url, tls) as proxy:
        answer = await proxy.get("/", headers={"x-peer": "mq://tern/client/operator"})
        assert answer.json() == "mq://tern/proxy/proxy-0"


async def test_without_tls_nobody_is_known_and_nothing_is_refused() -> None:
    """A mesh on loopback works as ever."""
    async with serving(None) as url, client(url) as anybody:
        assert (await anybody.get("/")).json() == "nobody"
        assert (await anybody.post("/operate")).status_code == 200
        assert (await anybody.post("/register/broker-a-0")).status_code == 200


@pytest.mark.parametrize(
    ("role", "name", "operates", "registers"),
    [
        ("client", "operator", 200, 403),
        ("client", "scraper", 403, 403),
        ("broker", "broker-a-0", 403, 200),
        ("broker", "broker-a-1", 403, 403),
        ("proxy", "broker-a-0", 403, 403),
        ("broker", "operator", 403, 403),
    ],
)
async def test_a_certificate_decides_what_is_allowed(
    role: str, name: str, operates: int, registers: int, pki: Pki
) -> None:
    """The operator operates, and a broker registers itself and nobody else."""
    async with serving(pki.tls("name-server", "n")) as url, client(url, pki.client(role, name, "name-server")) as peer:
        answers = await peer.post("/operate"), await peer.post("/register/broker-a-0")
        assert [answer.status_code for answer in answers] == [operates, registers]
        refused = [answer.json()["code"] for answer in answers if answer.status_code == 403]
        assert set(refused) <= {"certificate-forbidden"}


async def test_clients_of_a_proxy_need_no_certificate_and_know_it_by_its_host_name(pki: Pki) -> None:
    """As any client of any HTTPS server does."""
    trusting = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    async with serving(pki.tls("proxy", "proxy-0"), None) as url, client(url, trusting) as anybody:
        assert (await anybody.get("/")).json() == "nobody"


async def test_strangers_get_not_one_byte_of_http(pki: Pki) -> None:
    """Plain HTTP, TLS without a certificate, a role that has no business here, and silence: counted, each."""
    tls = pki.tls("broker", "broker-a-0")
    nobody = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    nobody.check_hostname = False
    async with serving(tls, frozenset({"broker"})) as url:
        port = int(url.rpartition(":")[2])
        for context in (None, nobody, pki.client("proxy", "proxy-0")):
            answer = b""
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = await asyncio.wait_for(reader.read(), 5)
                writer.close()
            assert answer == b""
        assert tls.refusals() == {"plain": 1, "certificate": 1, "role": 1, "late": 0, "crowded": 0}


class Silent(asyncio.Protocol):
    """Says nothing, and that it is gone."""

    def __init__(self, on_known: Callable[[], None]) -> None:
        self._on_known = on_known

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_known()


@contextlib.asynccontextmanager
async def listening(pki: Pki, **bounds: Any) -> AsyncIterator[tuple[Listener, ClusterTls, int, list[Silent]]]:
    """A bare listener with *bounds*, and the protocols that it has made."""
    sock = open_socket("127.0.0.1", 0, "--port")
    tls, made = pki.tls("broker", "broker-a-0"), []

    def make(on_known: Callable[[], None]) -> asyncio.Protocol:
        made.append(Silent(on_known))
        return made[-1]

    listener = Listener(sock, make, context=tls.server(ROLES), on_refusal=tls.refused, bounds=Bounds(**bounds))
    yield listener, tls, sock.getsockname()[1], made
    listener.close()
    await asyncio.wait_for(listener.wait_closed(), 5)
    sock.close()


async def until(check: Any, what: Any) -> None:
    """Poll *check* for five seconds."""
    deadline_s = time.monotonic() + 5
    while not check():
        assert time.monotonic() < deadline_s, what()
        await asyncio.sleep(0.01)


async def test_a_handshake_has_a_deadline(pki: Pki) -> None:
    """Who connects and says nothing, or half a word, is gone and counted."""
    async with listening(pki, handshake_max_ms=200) as (listener, tls, port, _):
        for opening in (b"", b"\x16\x03\x01\x02\x00\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(opening)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        await until(lambda: tls.refusals()["late"] == 2, tls.refusals)
        await until(lambda: listener.strangers == 0, lambda: listener.strangers)


async def test_at_the_cap_the_oldest_handshake_makes_room(pki: Pki) -> None:
    """A table of silent strangers does not keep anybody out."""
    async with listening(pki, strangers_max=4, handshake_max_ms=30_000) as (
        listener,
        tls,
        port,
        _,
    ):
        table = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        await until(lambda: tls.refusals()["crowded"] == 6, tls.refusals)
        assert listener.strangers == 4
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=pki.client("proxy", "p"))
        writer.close()
        for stranger in table:
            stranger.close()
        await until(lambda: listener.strangers == 0, lambda: listener.strangers)


async def test_a_stop_gives_up_handshakes(pki: Pki) -> None:
    """Whoever is in the middle of one does not hold it up."""
    async with listening(pki, handshake_max_ms=30_000) as (listener, _, port, _):
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: listener.strangers == 1, lambda: listener.strangers)
            listener.close()
            await asyncio.wait_for(listener.wait_closed(), 5)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_a_hundred_reloads_under_load_fail_no_request(pki: Pki) -> None:
    """Connections that are kept and connections that are new, while certificate, key and trust store change under them."""
    tls = pki.tls("proxy", "proxy-0")
    files = pki.files("proxy", "proxy-0")
    trusting = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    done = asyncio.Event()
    requests = [0, 0]

    async def ask(url: str, *, keeps: bool) -> None:
        async with contextlib.AsyncExitStack() as stack:
            kept = await stack.enter_async_context(client(url, trusting))
            while not done.is_set():
                if keeps:
                    answer = await kept.get("/")
                else:
                    async with client(url, trusting) as fresh:
                        answer = await fresh.get("/")
                assert answer.status_code == 200
                requests[keeps] += 1

    async with serving(tls, None) as url:
        askers = [asyncio.create_task(ask(url, keeps=number % 2 == 0)) for number in range(4)]
        for number in range(100):
            pair = await asyncio.to_thread(pki.renewed, "proxy", "proxy-0")
            pki.write(files, pair)
            if number % 2:
                files.ca.write_bytes(files.ca.read_bytes() + b"\n")
            # As the thread that looks at the files does.
            assert await asyncio.to_thread(tls.look)
        done.set()
        await asyncio.gather(*askers)
    assert tls.reloads == 100
    assert min(requests) > 50
    assert sum(tls.refusals().values()) == 0


@contextlib.asynccontextmanager
async def serving_plain(descriptors: Descriptors = OURS, **bounds: Any) -> AsyncIterator[int]:
    """The sample application in the clear with *bounds*; yields its port."""
    sock = open_socket("127.0.0.1", 0, "--port")
    stop = asyncio.Event()
    served = serve(sample_app(), sock, stop=stop, bounds=Bounds(**bounds), descriptors=descriptors)
    task = asyncio.create_task(served)
    yield sock.getsockname()[1]
    stop.set()
    await asyncio.wait_for(task, 30)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """One request on this connection; the head of its answer."""
    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    await reader.readexactly(len(b'"nobody"'))
    return head


@pytest.mark.parametrize("opening", [b"", b"GET / HTTP/1.1\r\nhost:"], ids=["silent", "half a head"])
async def test_in_the_clear_strangers_make_room_too_and_members_never_do(opening: bytes) -> None:
    """Who has asked once stays, whoever comes; who asks at once is served in the middle of a flood."""
    async with serving_plain(strangers_max=4) as port:
        member = await asyncio.open_connection("127.0.0.1", port)
        await ask(*member)
        table = []
        for number in range(20):
            table.append(await asyncio.open_connection("127.0.0.1", port))
            table[-1][1].write(opening)
            if number % 5 == 4:
                newcomer = await asyncio.open_connection("127.0.0.1", port)
                await ask(*newcomer)
                newcomer[1].close()
        for reader, _ in table[:16]:
            assert await asyncio.wait_for(reader.read(), 10) == b""
        assert b"200 OK" in await ask(*member)
        for _, writer in [member, *table]:
            writer.close()


async def test_while_descriptors_are_short_a_connection_is_for_one_request() -> None:
    """Else whoever asks once would hold one until its keep-alive ends. Those that were there before stay."""
    left, now_s = 10_000, 1.0
    descriptors = Descriptors(limit=lambda: left, count=lambda: 0, monotonic=lambda: now_s)
    async with serving_plain(descriptors) as port:
        before = await asyncio.open_connection("127.0.0.1", port)
        assert b"connection: close" not in await ask(*before)
        left, now_s = SHORT_BELOW - 1, 2.0
        newcomer = await asyncio.open_connection("127.0.0.1", port)
        assert b"connection: close" in await ask(*newcomer)
        assert await asyncio.wait_for(newcomer[0].read(), 10) == b""
        assert b"connection: close" not in await ask(*before)
        for _, writer in (before, newcomer):
            writer.close()
