"""The greeting, sans-IO: who is let in, and every way to be refused."""

import pytest

from tern_remoting import Frame, HandshakeRefused, PeerName
from tern_remoting.handshake import CHALLENGE, HELLO, PROOF, WELCOME, Answer, ClientHandshake, Identity, ServerHandshake

KEY = bytes(range(32))
OTHER_KEY = bytes(32)


def client_of(key: bytes = KEY, group_id: str = "mesh-1", nonce: bytes = b"c" * 16) -> ClientHandshake:
    """A proxy that greets."""
    return ClientHandshake(Identity(key=key, role="proxy", name="proxy-1", group_id=group_id), nonce)


def server_of(key: bytes = KEY, group_id: str = "mesh-1", nonce: bytes = b"s" * 16) -> ServerHandshake:
    """A broker that is greeted."""
    return ServerHandshake(Identity(key=key, role="broker", name="broker-a-1", group_id=group_id), nonce)


def framed(answer: Answer | None) -> Frame:
    """The answer as the other side reads it."""
    assert answer is not None
    return Frame(answer.code, 0, 0, "", answer.body)


def test_two_that_know_the_key_learn_each_other() -> None:
    """Four frames, then both sides know role and name of the other."""
    client, server = client_of(), server_of()
    challenge = server.receive(framed(client.opening()))
    proof = client.receive(framed(challenge))
    assert (client.peer, server.peer) == (None, None)
    welcome = server.receive(framed(proof))
    assert client.receive(framed(welcome)) is None
    assert client.peer == PeerName("broker", "broker-a-1")
    assert server.peer == PeerName("proxy", "proxy-1")
    assert [answer.code for answer in (challenge, proof, welcome) if answer] == [CHALLENGE, PROOF, WELCOME]


def test_a_client_with_another_key_refuses_the_server_before_it_proves_anything() -> None:
    """The server shows its knowledge first, so a false server gets no mac of the client to work on."""
    client, server = client_of(key=OTHER_KEY), server_of()
    with pytest.raises(HandshakeRefused):
        client.receive(framed(server.receive(framed(client.opening()))))
    assert not client.trusted


def test_a_server_refuses_a_proof_made_with_another_key() -> None:
    """A stranger that skips its own check gets no further."""
    hello = client_of().opening()
    stranger, server, twin = client_of(key=OTHER_KEY), server_of(), server_of(key=OTHER_KEY)
    proof = stranger.receive(framed(twin.receive(framed(stranger.opening()))))
    server.receive(framed(hello))
    with pytest.raises(HandshakeRefused):
        server.receive(framed(proof))
    assert server.peer is None


def test_a_replayed_proof_is_refused() -> None:
    """The same HELLO and PROOF bytes against a new challenge: the server's nonce differs."""
    client, server = client_of(), server_of()
    hello = framed(client.opening())
    proof = framed(client.receive(framed(server.receive(hello))))
    server.receive(proof)
    again = server_of(nonce=b"t" * 16)
    again.receive(hello)
    with pytest.raises(HandshakeRefused):
        again.receive(proof)


def test_a_reflected_mac_is_refused() -> None:
    """The server's own mac is no proof: a mac covers its direction."""
    client, server = client_of(), server_of()
    challenge = framed(server.receive(framed(client.opening())))
    with pytest.raises(HandshakeRefused):
        server.receive(Frame(PROOF, 0, 0, "", bytes(challenge.body)[-32:]))


@pytest.mark.parametrize("at", [2, 8, 20, -1])
def test_a_changed_hello_is_noticed(at: int) -> None:
    """Role, name, group id and nonce are all under the mac: a middleman can change none of them."""
    client, server = client_of(group_id=""), server_of(group_id="")
    hello = bytearray(client.opening().body)
    hello[at] ^= 1
    with pytest.raises(HandshakeRefused):
        client.receive(framed(server.receive(Frame(HELLO, 0, 0, "", bytes(hello)))))


def test_another_group_id_is_refused_and_an_unset_one_takes_all() -> None:
    """Two meshes with one key never mix, unless the server says that it does not care."""
    for theirs in ("mesh-2", ""):
        with pytest.raises(HandshakeRefused):
            server_of(group_id="mesh-1").receive(framed(client_of(group_id=theirs).opening()))
    answer = server_of(group_id="").receive(framed(client_of(group_id="mesh-2").opening()))
    assert answer.code == CHALLENGE


HELLO_BODY = client_of().opening().body


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("a request at once", Frame(310, 1, 0, "", b"")),
        ("a proof at once", Frame(PROOF, 0, 0, "", bytes(32))),
        ("an empty HELLO", Frame(HELLO, 0, 0, "", b"")),
        ("a cut HELLO", Frame(HELLO, 0, 0, "", HELLO_BODY[:-1])),
        ("a HELLO with more behind it", Frame(HELLO, 0, 0, "", HELLO_BODY + b"x")),
        ("another version", Frame(HELLO, 0, 0, "", b"\x02" + HELLO_BODY[1:])),
        ("an unknown role", Frame(HELLO, 0, 0, "", HELLO_BODY.replace(b"proxy", b"admin", 1))),
        ("a name that is not UTF-8", Frame(HELLO, 0, 0, "", HELLO_BODY.replace(b"proxy-1", b"proxy-\xff"))),
        ("a HELLO as a response", Frame(HELLO, 0, 1, "", HELLO_BODY)),
        ("a HELLO with a remark", Frame(HELLO, 0, 0, "let me in", HELLO_BODY)),
    ],
)
def test_a_malformed_greeting_is_refused(name: str, frame: Frame) -> None:
    """Nothing but a HELLO of our version opens a handshake."""
    with pytest.raises(HandshakeRefused):
        server_of().receive(frame)


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("a short key", {"key": b"secret"}),
        ("an unknown role", {"role": "admin"}),
        ("no name", {"name": ""}),
        ("a name over 255 bytes", {"name": "n" * 256}),
        ("a group id over 255 bytes", {"group_id": "g" * 256}),
    ],
)
def test_an_identity_that_cannot_be_said_is_refused_at_start(name: str, identity: dict[str, str]) -> None:
    """A wrong setting is an error where it is made, not a puzzle at the first handshake."""
    good = {"key": KEY, "role": "proxy", "name": "p", "group_id": "g"}
    with pytest.raises(ValueError, match=r"bytes|role"):
        Identity(**good | identity)  # type: ignore[arg-type]
