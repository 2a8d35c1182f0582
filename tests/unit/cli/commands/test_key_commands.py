"""`ternmq key`: what it asks a proxy, and where a key goes: to a file of its owner's, or to stdout, once."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_wire.errors import LimitReached, PrincipalNotFound, PrincipalPartlyWritten
from tern_wire.principals.client_keys import bearer_text, encoded_public_key, read_key_text
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said

RUNNER = CliRunner()
KID = "Zk3vQ8mT1xWc5RbN"
TEXT = bearer_text(KID, bytes(range(32)))
KEY: dict[str, Any] = {
    "kid": KID,
    "type": "bearer",
    "state": "active",
    "not_before": 0,
    "expires_at": 1_769_860_800_000,
    "created_at": 1_769_860_700_000,
    "networks": ["10.0.0.0/8"],
    "description": "till 3",
}
SHOP: dict[str, Any] = {"principal": "shop", "version": 1, "grants": [], "keys": [KEY], "requests_per_s": 0}
MADE = {**KEY, "principal": "shop", "key": TEXT, "missing_broker_groups": []}


def run(answer: Callable[[Asked], Reply], *words: str) -> tuple[Result, list[Asked]]:
    """A command at a proxy that says *answer*; and what it was asked."""
    with blocking_proxy(answer) as made:
        done = RUNNER.invoke(app, [*words, "--endpoint", made.url])
    return done, made.asked


def cluster(asked: Asked) -> Reply:
    """A proxy that knows shop and nobody else."""
    if asked.method == "POST":
        document = json.loads(asked.body)
        if public_key := document.get("public_key"):
            signing = {name: value for name, value in MADE.items() if name != "key"}
            return said({**signing, "type": "ed25519", "public_key": public_key}, 201)
        return said(MADE, 201)
    if asked.path == "/v1/principals/shop":
        return said(SHOP)
    if asked.method == "PUT":
        return said({**SHOP, "principal": "till", "created": True}, 201)
    return refused(PrincipalNotFound(principal="till"))


def test_a_key_goes_into_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    """Mode 0600, the text and a line end; nothing of it on the screen, in JSON neither."""
    out = tmp_path / "shop.key"
    words = ("--expires", "90d", "--network", "10.0.0.0/8", "--description", "till 3")
    done, asked = run(cluster, "key", "create", "shop", "--out", str(out), *words)
    assert done.exit_code == 0, done.output
    assert (out.read_text(), stat.S_IMODE(out.stat().st_mode)) == (f"{TEXT}\n", 0o600)
    assert TEXT not in done.output
    assert KID in done.output
    assert [(each.method, each.path) for each in asked] == [
        ("GET", "/v1/principals/shop"),
        ("POST", "/v1/principals/shop/keys"),
    ]
    assert json.loads(asked[1].body) == {"expires_in": "90d", "networks": ["10.0.0.0/8"], "description": "till 3"}
    out.unlink()
    done, _ = run(cluster, "key", "create", "shop", "--out", str(out), "-o", "json")
    assert TEXT not in done.output
    assert json.loads(done.stdout)["key_file"] == str(out)


def test_without_a_file_the_key_is_the_only_line_on_stdout() -> None:
    """For a redirection; with -o json it is a field."""
    done, asked = run(cluster, "key", "create", "shop", "--expires", "2027-01-31", "--not-before", "2027-01-01")
    assert (done.exit_code, done.stdout) == (0, f"{TEXT}\n")
    assert "not shown again" in done.stderr
    assert json.loads(asked[1].body) == {"expires_at": "2027-01-31", "not_before": "2027-01-01"}
    done, _ = run(cluster, "key", "create", "shop", "-o", "json")
    assert (json.loads(done.stdout)["key"], json.loads(done.stdout)["principal_created"]) == (TEXT, False)


def test_a_principal_that_is_not_there_is_created_and_told_what_it_lacks() -> None:
    """It can do nothing yet."""
    done, asked = run(cluster, "key", "create", "till")
    assert done.exit_code == 0, done.output
    assert [each.method for each in asked] == ["GET", "PUT", "POST"]
    assert "acl grant" in done.stderr


def test_a_signing_key_is_made_here_and_only_its_public_half_travels(tmp_path: Path) -> None:
    """The file has the private half, which fits the public one that was sent."""
    out = tmp_path / "shop.key"
    done, asked = run(cluster, "key", "create", "shop", "--type", "ed25519", "--out", str(out))
    assert done.exit_code == 0, done.output
    found = read_key_text(out.read_text().strip())
    assert found is not None
    kind, kid, private = found
    assert (kind, kid) == ("ed25519", KID)
    public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    assert json.loads(asked[1].body) == {"public_key": encoded_public_key(public)}
    assert all(out.read_text().strip()[-43:] not in each.body.decode() for each in asked)


def test_hmac_keys_are_not_made_any_more(tmp_path: Path) -> None:
    """The error names both alternatives; nobody is asked, and no file is made."""
    out = tmp_path / "shop.key"
    done, asked = run(cluster, "key", "create", "shop", "--type", "hmac-sha256", "--out", str(out))
    assert (done.exit_code, asked, out.exists()) == (2, [], False)
    assert "not made any more" in done.stderr and "ed25519" in done.stderr and "bearer" in done.stderr


def test_an_hmac_key_of_an_earlier_build_is_listed_with_what_to_do() -> None:
    """For people in words, for programs as the API says it."""
    old = {**SHOP, "keys": [{**KEY, "type": "hmac-sha256", "state": "not-accepted"}]}
    done, _ = run(lambda _: said(old), "key", "ls", "shop")
    assert "hmac-sha256" in done.stdout
    assert "no longer accepted; make an Ed25519 key" in " ".join(done.stdout.split())
    done, _ = run(lambda _: said(old), "key", "ls", "shop", "-o", "json")
    assert json.loads(done.stdout)[0]["state"] == "not-accepted"


def test_no_file_is_overwritten_and_none_is_left_when_there_is_no_key(tmp_path: Path) -> None:
    """The proxy is not asked when the file cannot be; and a refusal leaves nothing behind."""
    out = tmp_path / "shop.key"
    out.write_text("the only copy")
    done, asked = run(cluster, "key", "create", "shop", "--out", str(out))
    assert (done.exit_code, asked, out.read_text()) == (2, [], "the only copy")
    other = tmp_path / "other.key"
    full = refused(LimitReached(what="Keys of 'shop'", actual=2, limit=2))
    done, _ = run(
        lambda asked: full if asked.method == "POST" else cluster(asked), "key", "create", "shop", "--out", str(other)
    )
    assert (done.exit_code, other.exists()) == (1, False)
    assert "Keys of 'shop': 2 of 2" in done.stderr
    done, _ = run(cluster, "key", "create", "shop", "--out", str(tmp_path / "none" / "x.key"))
    assert done.exit_code == 1


def test_a_group_that_did_not_answer_is_a_warning_of_a_new_key() -> None:
    """It works; the rest follows."""
    partly = said({**MADE, "missing_broker_groups": ["broker-b"]}, 201)
    done, _ = run(lambda asked: partly if asked.method == "POST" else cluster(asked), "key", "create", "shop")
    assert (done.exit_code, done.stdout) == (0, f"{TEXT}\n")
    assert "broker-b" in done.stderr


def test_keys_are_listed_of_one_or_all() -> None:
    """By kid, with when and from where they are good."""
    done, asked = run(lambda _: said({"principals": [SHOP], "next_cursor": ""}), "key", "ls")
    assert "2026-01-31T12:00:00.000Z" in done.stdout
    assert "10.0.0.0/8" in done.stdout
    assert asked[0].path.startswith("/v1/principals?")
    done, asked = run(cluster, "key", "ls", "shop", "-o", "json")
    assert json.loads(done.stdout) == [{"principal": "shop", **KEY}]
    done, _ = run(cluster, "key", "ls", "nobody")
    assert done.exit_code == 1


def test_a_key_is_revoked_when_it_is_sure() -> None:
    """Asked for unless --yes; a revocation that is partly done fails, and says what to do."""
    done, asked = run(lambda _: said({}, 204), "key", "revoke", "shop", KID, "--yes")
    assert done.exit_code == 0, done.output
    assert [(each.method, each.path) for each in asked] == [("DELETE", f"/v1/principals/shop/keys/{KID}")]
    done, asked = run(cluster, "key", "revoke", "shop", KID)
    assert (done.exit_code != 0, asked) == (True, [])
    partly = refused(PrincipalPartlyWritten(principal="shop", done="broker-a", missing="broker-b"))
    done, asked = run(lambda _: partly, "key", "revoke", "shop", KID, "--yes")
    assert done.exit_code == 1
    assert len(asked) > 1
    assert "broker-b" in done.stderr
    assert "Repeat" in done.stderr


@pytest.mark.parametrize("words", [("root",), ("a b",), ("shop", "--type", "rsa")])
def test_what_cannot_be_asked_is_exit_code_2(words: tuple[str, ...]) -> None:
    """And the proxy is not."""
    done, asked = run(cluster, "key", "create", *words)
    assert (done.exit_code, asked) == (2, []), done.output
