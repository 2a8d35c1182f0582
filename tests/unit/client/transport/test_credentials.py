"""A client's key and authority: from files or the environment, read again when they change, and never sent where others could read them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tern_client import BlockingAdmin, Producer
from tern_client.transport.credentials import CA_FILE, KEY_FILE, REREAD_INTERVAL_S, Credentials, CredentialsUnusable
from tern_client.transport.exchange import Request
from tern_wire.principals.client_keys import bearer_text, signing_text

HERE, THERE = "http://127.0.0.1:8080", "https://proxy.example:8443"
KEY, OTHER = bearer_text("A" * 16, bytes(32)), bearer_text("B" * 16, bytes(range(32)))
REQUEST = Request("POST", "/v1/topics/orders/messages?tag=a", (("MQ-Tag", "b"),), b"x", 5, False, True)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has set is not part of a test."""
    monkeypatch.delenv(KEY_FILE, raising=False)
    monkeypatch.delenv(CA_FILE, raising=False)


def key_file(directory: Path, text: str, name: str = "key") -> Path:
    """A file with that text."""
    path = directory / name
    path.write_text(text)
    return path


def test_without_a_key_a_request_stays_as_it_is() -> None:
    """Nothing is added, and nothing copied."""
    assert Credentials((HERE,)).applied(REQUEST, HERE) is REQUEST


def test_a_bearer_key_is_a_header_of_every_request(tmp_path: Path) -> None:
    """Everything else of the request is the same; white space around the key in its file is none of it."""
    found = Credentials((HERE,), key_file(tmp_path, f"{KEY}\n")).applied(REQUEST, HERE)
    assert found.headers == (*REQUEST.headers, ("Authorization", f"Bearer {KEY}"))
    assert [getattr(found, name) for name in ("method", "path", "body", "wait_ms", "repeatable", "stores")] == [
        *("POST", REQUEST.path, b"x", 5, False, True),
    ]


def test_the_environment_names_files_unless_an_argument_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty argument is no file, whatever the environment says."""
    monkeypatch.setenv(KEY_FILE, str(key_file(tmp_path, KEY)))
    assert KEY in str(Credentials((HERE,)).applied(REQUEST, HERE).headers)
    assert OTHER in str(Credentials((HERE,), key_file(tmp_path, OTHER, "other")).applied(REQUEST, HERE).headers)
    assert Credentials((HERE,), "").applied(REQUEST, HERE) is REQUEST


def test_a_signing_key_signs_each_request_anew_and_is_never_sent(tmp_path: Path) -> None:
    """Two attempts have two nonces; a body has its digest; the key itself is in none of it."""
    text = signing_text("S" * 16, bytes(range(32)))
    credentials = Credentials((THERE,), key_file(tmp_path, text))
    one, two = (dict(credentials.applied(REQUEST, THERE).headers) for _ in range(2))
    assert one.keys() == {"MQ-Tag", "Signature-Input", "Signature", "Content-Digest"}
    assert one["Signature"] != two["Signature"]
    assert text[-43:] not in str((one, two))


def test_a_signing_key_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    """Where cryptography is not installed, bearer keys work and Ed25519 keys say what to install; the library of signatures is never needed."""
    script = """
import sys
sys.modules.update({sys.argv[3]: None, "http_message_signatures": None})
from tern_client.transport.credentials import Credentials
from tern_wire.extras import ExtraMissing
from tern_client.transport.exchange import Request
for file in sys.argv[1:3]:
    try:
        made = Credentials(("https://proxy",), file).applied(Request("GET", "/v1/topics"), "https://proxy")
        print(*(name for name, _ in made.headers))
    except ExtraMissing as error:
        print(error)
"""
    keys = (key_file(tmp_path, KEY, "one"), key_file(tmp_path, signing_text("S" * 16, bytes(32)), "two"))
    path = os.pathsep.join(sys.path)
    for hidden, second in (("cryptography", "ternmq-client[security]"), ("nothing", "Signature-Input Signature")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", script, *map(str, keys), hidden],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert (lines[0], second in lines[1]) == ("Authorization", True), lines


def test_an_hmac_key_is_refused_with_its_alternative(tmp_path: Path) -> None:
    """When the client is made; the text of the key is not shown."""
    text = "mqh" + signing_text("S" * 16, bytes(range(32)))[3:]
    with pytest.raises(CredentialsUnusable, match="--type ed25519") as refused:
        Credentials((THERE,), key_file(tmp_path, text))
    assert text[-43:] not in str(refused.value)


def test_a_key_is_not_sent_in_the_clear_beyond_this_machine(tmp_path: Path) -> None:
    """Plain http is for this machine alone; one such endpoint among others is enough to refuse."""
    key = key_file(tmp_path, KEY)
    for host in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://192.0.2.7"):
        Credentials((host,), key)
    for hosts in (("http://192.0.2.7:8080",), (THERE, "http://proxy.example")):
        with pytest.raises(CredentialsUnusable, match="anybody could read it"):
            Credentials(hosts, key)


def test_a_key_that_is_exchanged_in_its_file_is_used_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the interval; a file that is gone or half written changes nothing."""
    now_s = 1_000.0
    monkeypatch.setattr("tern_client.transport.credentials.time.monotonic", lambda: now_s)
    path = key_file(tmp_path, KEY)
    credentials = Credentials((HERE,), path)
    replacement = key_file(tmp_path, OTHER, "new")
    os.utime(replacement, ns=(1, 1))
    replacement.replace(path)
    assert KEY in str(credentials.applied(REQUEST, HERE).headers)
    now_s += REREAD_INTERVAL_S
    assert OTHER in str(credentials.applied(REQUEST, HERE).headers)
    for text in ("mqk_half", None):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        now_s += REREAD_INTERVAL_S
        assert OTHER in str(credentials.applied(REQUEST, HERE).headers)


@pytest.mark.parametrize("text", ["", "secret", f"{KEY} {KEY}", "mqk_short_x", KEY + "\n" + OTHER, "\x00" * 2_000])
def test_a_file_that_holds_no_key_is_named_without_what_is_in_it(tmp_path: Path, text: str) -> None:
    """The error says which file, and what to do; a text that may be a password is not shown."""
    path = key_file(tmp_path, text)
    with pytest.raises(CredentialsUnusable, match=str(path)) as refused:
        Credentials((HERE,), path)
    assert not text.strip() or text not in str(refused.value)


@pytest.mark.anyio
async def test_clients_take_both_files(tmp_path: Path) -> None:
    """Blocking and asyncio ones; a wrong one is refused when the client is made."""
    key = key_file(tmp_path, KEY)
    BlockingAdmin(HERE, key_file=key).close()
    await Producer(HERE, key_file=key).close()
    for make in (BlockingAdmin, Producer):
        with pytest.raises(CredentialsUnusable):
            make(HERE, key_file=tmp_path / "none")
        with pytest.raises(CredentialsUnusable):
            make(THERE, ca_file=key)
