"""Links over TLS: the same links, and strangers that cost a counted refusal."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tern_remoting import Frame, HandshakeRefused, Link, LinkServer, dial
from tests.support.pki.cluster_pki import Pki

KEY = bytes(range(32))
SIZE_MAX_BYTES = 9 << 20
ROLES = ("proxy", "checker", "broker")


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A cluster."""
    return Pki(tmp_path / "cluster")


def echo(link: Link, frame: Frame) -> None:
    """Answers a request with its body."""
    link.reply(frame.opaque, 0, [bytes(frame.body)])


@pytest.fixture
async def server(pki: Pki) -> AsyncIterator[LinkServer]:
    """A broker's link port, with a cap of four connections and half a second for a handshake."""
    listening = make_server(pki)
    await listening.start()
    yield listening
    await listening.stop()


def make_server(pki: Pki, **changes: Any) -> LinkServer:
    """As `server`, not started."""
    settings: dict[str, Any] = {
        "key": KEY,
        "name": "broker-a-0",
        "group_id": "mesh-1",
        "on_frame": echo,
        "frame_size_max_bytes": SIZE_MAX_BYTES,
        "connections_max": 4,
        "strangers_max": 4,
        "handshake_timeout_s": 0.5,
        "tls_timeout_s": 0.5,
        "tls": pki.server("broker", "broker-a-0", *ROLES),
    }
    return LinkServer("127.0.0.1", 0, **settings | changes)


async def call(
    server: LinkServer, tls: ssl.SSLContext | None, role: str = "proxy", name: str = "p", **changes: Any
) -> Link:
    """A link to *server*."""
    settings: dict[str, Any] = {"key": KEY, "group_id": "mesh-1", "on_frame": echo, "timeout_s": 2.0}
    return await dial(
        "127.0.0.1",
        server.port,
        role=role,
        name=name,
        frame_size_max_bytes=SIZE_MAX_BYTES,
        tls=tls,
        **settings | changes,
    )


async def until(check: Callable[[], bool], what: str) -> None:
    """Poll *check* for two seconds."""
    deadline_s = time.monotonic() + 2
    while not check():
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(0.01)


async def test_frames_of_every_size_travel_in_both_directions(server: LinkServer, pki: Pki) -> None:
    """From nothing to several megabytes, many at a time, each whole."""
    link = await call(server, pki.client("proxy", "proxy-0", "broker"))
    bodies = [bytes([number % 251]) * size for number, size in enumerate((0, 1, 100, 16_384, 16_385, 700_000, 4 << 20))]
    replies = await asyncio.gather(*(link.request(7, [body[:9], body[9:]], timeout_s=20) for body in bodies))
    assert [bytes(reply.body) for reply in replies] == bodies
    assert server.links[0].identity is not None
    assert server.links[0].identity.uri == "mq://tern/proxy/proxy-0"
    link.close("done")
    await link.gone()


async def test_a_link_in_the_clear_and_one_without_a_certificate_are_refused(server: LinkServer, pki: Pki) -> None:
    """Who knows the key, but comes without TLS or without a certificate of the cluster, is not greeted."""
    nobody = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    nobody.check_hostname = False
    for tls in (None, nobody):
        with pytest.raises((HandshakeRefused, OSError)):
            await call(server, tls)
    await until(lambda: server.refusals()["tls"] == 2, f"two refusals: {server.refusals()}")
    assert server.links == ()


async def test_a_certificate_of_a_strangers_authority_is_refused(server: LinkServer, pki: Pki, tmp_path: Path) -> None:
    """By the server; and a client that is answered by a stranger says nothing to it."""
    strange = Pki(tmp_path / "strange")
    context = strange.client("proxy", "proxy-0", "broker")
    with pytest.raises(ssl.SSLCertVerificationError):
        await call(server, context)
    context.current.load_verify_locations(pki.directory.ca_cert)  # type: ignore[attr-defined]
    with pytest.raises((HandshakeRefused, OSError)):
        await call(server, context)
    # Who took longer over it than a handshake may is counted as late.
    await until(
        lambda: (server.refusals()["unfinished"] + server.refusals()["late"], server.refusals()["tls"]) == (1, 1),
        f"the client went, then the server: {server.refusals()}",
    )


@pytest.mark.parametrize(
    ("certificate", "greeting"),
    [
        (("proxy", "proxy-0"), ("broker", "proxy-0")),
        (("checker", "c"), ("proxy", "c")),
        (("broker", "broker-a-1"), ("broker", "broker-a-2")),
        (("broker", "broker-a-1"), ("proxy", "broker-a-1")),
    ],
)
async def test_who_greets_must_be_who_the_certificate_is_for(
    certificate: tuple[str, str], greeting: tuple[str, str], server: LinkServer, pki: Pki
) -> None:
    """The key is everybody's; a broker in another broker's name, or a proxy as a broker, is a stranger."""
    with pytest.raises(HandshakeRefused):
        await call(server, pki.client(*certificate), *greeting)
    await until(lambda: server.refusals()["stranger"] == 1, f"a refusal: {server.refusals()}")
    assert server.links == ()


async def test_many_proxies_may_share_a_certificate(server: LinkServer, pki: Pki) -> None:
    """Their names carry no rights."""
    tls = pki.client("proxy", "proxy-0", "broker")
    links = [await call(server, tls, "proxy", f"proxy-{number}") for number in range(3)]
    assert all(link.ready for link in links)
    for link in links:
        link.close("done")
        await link.gone()


async def test_a_server_of_another_name_than_its_certificate_is_not_believed(pki: Pki) -> None:
    """The dialling side checks the same."""
    lying = make_server(pki, name="broker-a-2")
    await lying.start()
    with pytest.raises(HandshakeRefused):
        await call(lying, pki.client("proxy", "proxy-0"))
    await lying.stop()


async def test_a_handshake_has_half_a_second_here_whatever_comes(server: LinkServer) -> None:
    """Silence, and a ClientHello that trickles."""
    for opening in (b"", b"\x16\x03\x01\x02\x00"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(opening)
        assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()
    await until(lambda: server.refusals()["late"] == 2, f"late: {server.refusals()}")


async def test_greeting_late_after_a_quick_tls_handshake_is_late(server: LinkServer, pki: Pki) -> None:
    """A member's certificate buys no time."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=pki.client("proxy", "proxy-0", "broker")
    )
    assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.close()
    await until(lambda: server.refusals()["late"] == 1, f"late: {server.refusals()}")


async def test_strangers_in_their_handshakes_do_not_keep_members_out(pki: Pki) -> None:
    """At the cap the oldest handshake makes room at once, though it has no transport yet."""
    server = make_server(pki, tls_timeout_s=30.0)
    await server.start()
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    # All of them are older than the member's handshake.
    await until(lambda: server.refusals()["crowded"] >= 4, f"crowded: {server.refusals()}")
    link = await call(server, pki.client("proxy", "proxy-0", "broker"))
    assert link.ready
    await until(lambda: server.refusals()["crowded"] >= 5, f"crowded: {server.refusals()}")
    assert server.refusals()["tls"] == 0
    for stranger in strangers[:4]:
        # Given up is hung up: the descriptor must not wait for the end of a handshake that nobody wants.
        stranger.settimeout(5)
        assert await asyncio.to_thread(stranger.recv, 1) == b""
    for stranger in strangers:
        stranger.close()
    link.close("done")
    await link.gone()
    await server.stop()


async def test_a_stop_does_not_wait_for_handshakes(pki: Pki) -> None:
    """A stranger that says nothing cannot hold a broker up."""
    server = make_server(pki, tls_timeout_s=30.0)
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)):
        await until(lambda: bool(server._links), "accepted")
        await asyncio.wait_for(server.stop(), 2)
