"""One callback over real sockets: signature, limits, redirects, time, rebinding, TLS, connections that are used again."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tern_http.connection import HEAD_SIZE_MAX_BYTES
from tern_service.clock import SystemClock
from tern_txn_checker import callback
from tern_txn_checker.callback import Callbacks
from tern_txn_checker.core.answers import ANSWER_SIZE_MAX_BYTES, Answer
from tern_txn_checker.core.schedule import Check, Claim
from tern_txn_checker.host_resolver import Resolver
from tern_wire.checks.urls import CheckHosts
from tests.support.checker.certificates import producer_context, write_authority
from tests.support.checker.scripted_producer import (
    SECRET,
    Asked,
    Behaviour,
    ScriptedProducer,
    answers,
    hangs,
    says,
    sends,
)
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio

HOSTS = "127.0.0.1,127.0.0.2,hooks.example.com,other.example.com,*.example.org,[::1]"
COMMIT = b'{"state":"commit"}'
QUICKLY_MS = 300


def check(url: str, *, secret: str = SECRET, hosts: str = HOSTS, body: bytes = b'{"question":"\xc3\xbc"}') -> Check:
    """A check of *url*."""
    return Check(
        claim=Claim(broker_group="broker-a", number=1, claim=1, producer_group_id=1, until_ms=1 << 60),
        transaction_id="AQAAtransaction-id_1",
        url=CheckHosts.parse(hosts).require_allowed(url),
        secret=secret,
        body=body,
        timeout_ms=5_000,
        start_by_ms=1 << 60,
    )


class Names:
    """A resolver that says, look-up by look-up, what it is told to; the last answer stays."""

    def __init__(self, *found: list[str] | OSError) -> None:
        self.found = list(found)
        self.asked: list[str] = []

    async def addresses(self, name: str) -> list[str]:
        """The next answer."""
        self.asked.append(name)
        answer = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


@asynccontextmanager
async def calling(
    behaviour: Behaviour, *, hosts: str = HOSTS, names: Any = None, ca_file: Path | None = None, **producer: Any
) -> AsyncIterator[tuple[Callbacks, ScriptedProducer]]:
    """Callbacks, and a producer that behaves so."""
    made = await ScriptedProducer(behaviour, **producer).start()
    callbacks = Callbacks(
        hosts=CheckHosts.parse(hosts), resolver=names or Names(["127.0.0.1"]), clock=SystemClock(), ca_file=ca_file
    )
    try:
        yield callbacks, made
    finally:
        callbacks.close()
        await made.stop()


async def test_a_question_is_a_signed_post_that_the_library_verifies() -> None:
    """With the transaction's id as the message's, so that producers know repeats; a flipped bit or another secret is refused."""
    async with calling(says("commit")) as (callbacks, producer):
        assert await callbacks.ask(check(producer.url), 5_000) == Answer("commit")
        (asked,) = producer.asked
        assert (asked.method, asked.path) == ("POST", "/checks?by=tern")
        assert asked.headers["content-type"] == "application/cloudevents+json"
        assert asked.headers["host"] == f"127.0.0.1:{producer.port}"
        assert asked.headers["webhook-id"] == "AQAAtransaction-id_1"
        assert Webhook(SECRET).verify(asked.body, asked.headers) == {"question": "ü"}
        for secret, body in (
            (SECRET, asked.body + b" "),
            ("whsec_" + base64.b64encode(bytes(32)).decode(), asked.body),
        ):
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(body, asked.headers)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "whsec_a"])
async def test_without_a_secret_nobody_is_asked(secret: str) -> None:
    """An unsigned question would teach producers to believe unsigned ones."""
    async with calling(says("commit")) as (callbacks, producer):
        assert await callbacks.ask(check(producer.url, secret=secret), 5_000) == Answer("no-secret")
        assert producer.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    """Where it leads was not checked: unknown, and nobody is called there."""
    async with calling(says("commit")) as (_, elsewhere), calling(answers(status)) as (callbacks, producer):
        producer.behaviour = answers(status, COMMIT, f"Location: {elsewhere.url}")
        assert await callbacks.ask(check(producer.url), 5_000) == Answer(f"http-{status}")
        assert (len(producer.asked), elsewhere.connections) == (1, 0)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (answers(200, COMMIT + b" " * (ANSWER_SIZE_MAX_BYTES - len(COMMIT))), "commit"),
        (answers(200, COMMIT + b" " * (ANSWER_SIZE_MAX_BYTES - len(COMMIT) + 1)), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\n\r\n" + COMMIT + b" " * ANSWER_SIZE_MAX_BYTES), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"8000\r\n" + b" " * 0x8000 + b"\r\n" + b"8001\r\n" + b" " * 0x8001), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (HEAD_SIZE_MAX_BYTES + 1), closes=False), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * HEAD_SIZE_MAX_BYTES, closes=False), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * ANSWER_SIZE_MAX_BYTES, closes=False), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 40_000, closes=False), "too-large"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + COMMIT), "broken-off"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n" + COMMIT), "broken-off"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n" + COMMIT + b"\r\n"), "broken-off"),
        (sends(b"HTTP/1.1 200 OK\r\nConte"), "broken-off"),
        (sends(b""), "broken-off"),
        (sends(b"HTTP/1.1 200 OK\r\n\r\n" + COMMIT, signed=COMMIT), "commit"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n" + COMMIT + b"\r\n0\r\n\r\n", signed=COMMIT), "commit"),
        (sends(b"HTTP/1.0 200 OK\r\n\r\n" + COMMIT, signed=COMMIT), "commit"),
        (sends(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n" + COMMIT), "no-http"),
        (sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "no-http"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\nContent-Length: 19\r\n\r\n" + COMMIT), "no-http"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\nTransfer-Encoding: chunked\r\n\r\n" + COMMIT), "no-http"),
        (sends(b"SSH-2.0-OpenSSH_9.9\r\n"), "no-http"),
        (sends(b"\x00" * 100), "no-http"),
        (sends(b"+PONG\r\n"), "no-http"),
        (answers(204), "http-204"),
        (answers(200), "malformed"),
        (answers(503, COMMIT), "http-503"),
    ],
    ids=range(26),
)  # fmt: skip
async def test_every_odd_exchange_is_unknown_and_none_is_kept_in_memory(behaviour: Behaviour, text: str) -> None:
    """64 KiB of body, 16 KiB of head, whatever way they come."""
    async with calling(behaviour) as (callbacks, producer):
        found = await callbacks.ask(check(producer.url), 5_000)
        assert found.text == text
        assert found.is_verdict is (text == "commit")


async def test_a_host_is_not_to_blame_for_a_large_answer() -> None:
    """But it is for one that breaks off, or is no HTTP: only these count against it."""
    large = answers(200, b" " * (ANSWER_SIZE_MAX_BYTES + 1))
    for behaviour, is_alive in ((large, True), (sends(b""), False), (sends(b"+PONG\r\n"), False)):
        async with calling(behaviour) as (callbacks, producer):
            assert (await callbacks.ask(check(producer.url), 5_000)).is_alive is is_alive


async def trickles(_: Asked, writer: asyncio.StreamWriter) -> bool:
    """A head that never ends, a byte every 10 ms."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def answers_late(_: Asked, writer: asyncio.StreamWriter) -> bool:
    """A head at once and a body never."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n" + COMMIT[:-1])
    await asyncio.Event().wait()
    return False


@pytest.mark.parametrize("behaviour", [hangs, trickles, answers_late])
async def test_an_answer_has_its_time_and_no_more(behaviour: Behaviour) -> None:
    """The time is that of the whole call: bytes that trickle in do not extend it, and the connection is closed."""
    async with calling(behaviour) as (callbacks, producer):
        began_s = asyncio.get_running_loop().time()
        found = await callbacks.ask(check(producer.url), QUICKLY_MS)
        assert found == Answer("timeout", is_alive=False)
        assert asyncio.get_running_loop().time() - began_s >= QUICKLY_MS / 1_000 - 0.01
        producer.behaviour = says("commit")
        assert (await callbacks.ask(check(producer.url), 5_000)).text == "commit"
        assert producer.connections == 2


async def test_a_name_that_is_never_resolved_takes_no_longer_than_the_call() -> None:
    """The look-up goes on by itself: who asks next joins it, and a second thread is not started."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    asked: list[str] = []

    def look_up(name: str) -> list[str]:
        asked.append(name)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(20)
        return ["127.0.0.1"]

    async with calling(says("commit"), names=Resolver(look_up), hosts=HOSTS) as (callbacks, producer):
        url = f"http://hooks.example.com:{producer.port}/"
        for _ in range(3):
            assert (await callbacks.ask(check(url), 50)).text == "timeout"
        answer = asyncio.create_task(callbacks.ask(check(url), 5_000))
        release.set()
        assert (await answer).text == "commit"
        assert asked == ["hooks.example.com"]


async def test_nobody_listens_and_names_without_an_address_are_told_apart() -> None:
    """Both count against the host."""
    async with calling(says("commit"), names=Names(OSError("no such name"))) as (callbacks, producer):
        port = producer.port
        assert await callbacks.ask(check(f"http://hooks.example.com:{port}/"), 5_000) == Answer(
            "no-address", is_alive=False
        )
        await producer.stop()
        assert await callbacks.ask(check(producer.url), 5_000) == Answer("refused", is_alive=False)
        await producer.start()


# Where it connects --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.3"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
        ["fe80::1%lo"],
        ["0.0.0.0"],
        ["127.0.0.1", "10.0.0.1"],
        ["10.0.0.1", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
    ],
    ids=" ".join,
)
async def test_a_name_that_resolves_to_a_forbidden_address_is_not_called(found: list[str]) -> None:
    """Although the name itself is listed, and other addresses of it may be called. (127.0.0.1 is; a public one by https only.)"""
    async with calling(says("commit"), names=Names(found)) as (callbacks, producer):
        url = f"http://hooks.example.com:{producer.port}/"
        assert await callbacks.ask(check(url), 5_000) == Answer("url-forbidden")
        assert producer.connections == 0


async def test_a_name_is_resolved_once_and_that_answer_is_the_one_that_is_called() -> None:
    """Rebinding: every later look-up would lead elsewhere. The connection goes to the address that was checked, under the name's Host header."""
    names = Names(["127.0.0.2"], ["127.0.0.9"])
    async with calling(says("commit"), names=names, host="127.0.0.2") as (callbacks, producer):
        url = f"http://hooks.example.com:{producer.port}/"
        assert (await callbacks.ask(check(url), 5_000)).text == "commit"
        assert names.asked == ["hooks.example.com"]
        assert producer.asked[0].headers["host"] == f"hooks.example.com:{producer.port}"


async def test_a_name_that_is_bound_anew_is_checked_anew_for_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look-up is good; the second, for a new connection, leads to metadata and is refused."""
    monkeypatch.setattr(callback, "CONNECTION_LIFE_S", 0.0)
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with calling(says("commit"), names=names) as (callbacks, producer):
        url = f"http://hooks.example.com:{producer.port}/"
        assert [(await callbacks.ask(check(url), 5_000)).text for _ in range(2)] == ["commit", "url-forbidden"]
        assert producer.connections == 1


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    """Each of them was checked before the first was called."""
    async with calling(says("commit"), names=Names(["127.0.0.2", "127.0.0.1"])) as (callbacks, producer):
        url = f"http://hooks.example.com:{producer.port}/"
        assert (await callbacks.ask(check(url), 5_000)).text == "commit"


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would connect wherever it likes."""
    async with calling(says("rollback")) as (_, elsewhere), calling(says("commit")) as (callbacks, producer):
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
        assert (await callbacks.ask(check(producer.url), 5_000)).text == "commit"
        assert elsewhere.connections == 0


# Connections --------------------------------------------------------------------------------------------------------
async def test_a_connection_is_used_again_and_one_that_was_closed_meanwhile_is_replaced() -> None:
    """A producer may close an idle connection at any time: the question is asked again on a new one, without a failure."""
    async with calling(says("commit")) as (callbacks, producer):
        for _ in range(5):
            assert (await callbacks.ask(check(producer.url), 5_000)).text == "commit"
        assert producer.connections == 1

        async def says_and_leaves(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await says("commit")(asked, writer)
            return False

        producer.behaviour = says_and_leaves
        for _ in range(5):
            assert (await callbacks.ask(check(producer.url), 5_000)).text == "commit"
        assert 5 <= producer.connections <= 6
        assert len(producer.asked) == 10


async def test_what_follows_an_answer_makes_its_connection_useless() -> None:
    """A second answer in the same bytes, or later, belongs to no question: it must not become the answer to the next one."""
    two = b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n" + COMMIT
    smuggled = b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"state":"rollback"}'
    async with calling(sends(two + smuggled, closes=False, signed=COMMIT)) as (callbacks, producer):
        for number in range(3):
            assert (await callbacks.ask(check(producer.url), 5_000)).text == "commit"
            assert producer.connections == number + 1


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's descriptors are held for ever."""
    monkeypatch.setattr(callback, "CONNECTION_IDLE_S", 0.05)
    async with calling(says("commit")) as (callbacks, producer):
        await callbacks.ask(check(producer.url), 5_000)
        assert producer._tasks
        await eventually(lambda: not producer._tasks, "the producer sees the connection's end")


# TLS ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "is_trusted", "text"),
    [
        ("hooks.example.com", True, "commit"),
        ("127.0.0.1", True, "commit"),
        ("other.example.com", True, "tls-failed"),
        ("hooks.example.com", False, "tls-failed"),
    ],
)
async def test_tls_is_checked_for_the_urls_own_host(tmp_path: Path, host: str, is_trusted: bool, text: str) -> None:
    """The connection goes to an address, the certificate must be of the name; a certificate of nobody's trust is none."""
    authority = write_authority(tmp_path) if is_trusted else None
    async with calling(says("commit"), ca_file=authority, tls=producer_context(tmp_path)) as (callbacks, producer):
        found = await callbacks.ask(check(f"https://{host}:{producer.port}/"), 5_000)
        assert found.text == text
        assert len(producer.asked) == (text == "commit")


async def test_tls_at_a_port_that_speaks_none_is_unknown() -> None:
    """And the other way round."""
    async with calling(says("commit")) as (callbacks, producer):
        found = await callbacks.ask(check(f"https://127.0.0.1:{producer.port}/"), QUICKLY_MS)
        assert (found.is_verdict, found.is_alive) == (False, False)


@pytest.mark.parametrize("body", [b"{}", json.dumps({"x": "y" * 300_000}).encode()], ids=["small", "large"])
async def test_questions_of_any_size_arrive_whole(body: bytes) -> None:
    """With include_body they may be large."""
    async with calling(says("commit")) as (callbacks, producer):
        assert (await callbacks.ask(check(producer.url, body=body), 5_000)).text == "commit"
        assert producer.asked[0].body == body


async def test_callbacks_side_by_side_have_a_connection_each() -> None:
    """Nobody waits for another one's answer."""
    release = asyncio.Event()

    async def waits(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        return await says("commit")(asked, writer)

    async with calling(waits) as (callbacks, producer):
        tasks = [asyncio.create_task(callbacks.ask(check(producer.url), 5_000)) for _ in range(4)]
        await eventually(lambda: producer.under_way == 4, "four at a time")
        release.set()
        assert {(await task).text for task in tasks} == {"commit"}
