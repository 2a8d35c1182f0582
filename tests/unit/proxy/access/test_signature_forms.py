"""Signatures that the SDK does not write: every form of RFC 9421 is read, and a form that says too
little, or two things, is refused.
"""

import base64
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tern_proxy.access.signed_requests import HmacSigned, NotSigned, Signed, read_signature
from tern_proxy.core.access.namespaces import SCOPE_HEADERS

CASES = 1_000
NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1_000
KID, OTHER_KID, BEARER_KID, STRANGER_KID = "S" * 16, "O" * 16, "B" * 16, "N" * 16
KEYS = {
    kid: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, kid in enumerate((KID, OTHER_KID), 1)
}
# By kid; a bearer key has no public half.
KNOWN = {kid: key.public_key().public_bytes_raw() for kid, key in KEYS.items()} | {BEARER_KID: b""}
# Verifies unknown kids, and everybody has its private half.
NOBODY = Ed25519PrivateKey.from_private_bytes(bytes(32))
COVERED = ("@method", "@path", "@query", "@authority")
NAMESPACE, DIGEST = "mq-namespace", "content-digest"
# Each is no host, or would be read in two ways.
HOSTS = ("", "a b", "user@proxy", "[::1", "a/b", "a?b", "a#b", "é")
# A raw path or query with these could mean another one, or cannot be signed at all.
PATHS, QUERIES, METHODS = ("*", "x", "/é", "/a#b", "/a?b", "/a\nb"), ("é", "a#b", "a\n"), ("get", "Post", "ÄB", "G\n")


def parameters(
    *, created: object = NOW_S, kid: str = KID, alg: str = '"ed25519"', nonce: str = "n" * 22, more: str = ""
) -> str:
    """As the SDK writes them; an empty one is left out."""
    told = f';created={created};keyid="{kid}"'
    return told + (f";alg={alg}" if alg else "") + (f';nonce="{nonce}"' if nonce else "") + more


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request as it is sent, and its signature, made without the library and without the SDK."""

    method: str = "POST"
    path: str = "/v1/topics/orders/messages"
    query: str = "tag=a&key=b"
    scheme: str = "http"
    host: str = "proxy:8080"
    authority: str = "proxy:8080"
    namespace: str | None = None
    digest: str = "sha-256"
    covered: tuple[str, ...] = (*COVERED, DIGEST)
    # Before each name but the first, and after the last one.
    space: str = " "
    label: str = "pyhms"
    parameters: str = parameters()
    sign: Callable[[bytes], bytes] = field(default=KEYS[KID].sign, repr=False)

    def scope(self) -> dict[str, Any]:
        """The request as a server gets it."""
        headers = [(b"host", self.host.encode()), (b"accept", b"*/*")]
        values = {"@method": self.method, "@path": self.path, "@query": f"?{self.query}", "@authority": self.authority}
        if self.namespace is not None:
            values[NAMESPACE] = self.namespace
            headers.append((NAMESPACE.encode(), self.namespace.encode()))
        if self.digest:
            hashed = (hashlib.sha512 if self.digest == "sha-512" else hashlib.sha256)(b"hello").digest()
            values[DIGEST] = f"{self.digest}=:{base64.b64encode(hashed).decode()}:"
            headers += [(DIGEST.encode(), values[DIGEST].encode()), (b"content-length", b"5")]
        names = [f'"{name}"' for name in self.covered]
        lines = [f"{name}: {values.get(name.strip(chr(34)), '*/*')}" for name in names]
        base = "\n".join([*lines, f'"@signature-params": ({" ".join(names)}){self.parameters}'])
        signature = base64.b64encode(self.sign(base.encode())).decode()
        headers += [
            (b"signature-input", f"{self.label}=({self.space.join(names)}){self.parameters}".encode()),
            (b"signature", f"{self.label}=:{signature}:".encode()),
        ]
        return {
            "type": "http",
            "method": self.method,
            "scheme": self.scheme,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "headers": headers,
        } | ({SCOPE_HEADERS: list(headers)} if self.namespace is not None else {})


def verdict(scope: dict[str, Any]) -> Signed | str:
    """The signature, or the reason for the audit."""
    try:
        return read_signature(scope, lambda kid: KNOWN.get(kid, b""), NOW_MS)
    except NotSigned as error:
        return error.reason


@pytest.mark.parametrize(
    "changed",
    [
        {"covered": (DIGEST, *reversed(COVERED))},
        {"covered": ("accept", *COVERED, DIGEST)},
        {"space": "   "},
        {"label": "*a.b-c_d"},
        {"digest": "sha-512"},
        {"digest": "", "covered": COVERED},
        {"namespace": "acme", "covered": (*COVERED, NAMESPACE, DIGEST)},
        {"host": "Proxy:80", "authority": "proxy"},
        {"host": "[::1]:8080", "authority": "[::1]:8080"},
        {"path": "/v1/topics/a%20b/x", "query": ""},
        {"path": "//double"},
        {"parameters": parameters(alg="")},
        {"parameters": parameters(more=f";expires={NOW_S + 9}")},
        {"parameters": parameters(more=';tag="x"')},
        {"parameters": parameters(created=NOW_S - 299)},
        {"parameters": parameters(nonce="12345678")},
    ],
)
def test_every_form_of_the_rfc_is_read(changed: dict[str, Any]) -> None:
    """Another order, more fields, white space, another digest, optional parameters: a client needs
    no SDK of ours.
    """
    said = verdict(Case(**changed).scope())
    assert isinstance(said, Signed), said
    assert said.kid == KID


@pytest.mark.parametrize(
    "changed",
    [
        *({"covered": tuple(each for each in (*COVERED, DIGEST) if each != name)} for name in (*COVERED, DIGEST)),
        {"covered": (*COVERED, DIGEST, "@method")},
        {"covered": (*COVERED, DIGEST, "missing")},
        {"namespace": "acme"},
        {"digest": "md5"},
        *({"parameters": parameters(created=value)} for value in (0, -1, f"{NOW_S}.0", "9" * 16, '"1"', NOW_S - 301)),
        *({"parameters": parameters(nonce=value)} for value in ("", "1234567", "n" * 65)),
        *({"parameters": parameters(alg=value)} for value in ('"ED25519"', '"rsa-v1_5-sha256"', "ed25519")),
        *({"parameters": parameters(kid=value)} for value in (OTHER_KID, BEARER_KID, STRANGER_KID, "")),
        *({"parameters": parameters(more=value)} for value in (f";expires={NOW_S}", ";expires=x", ";x=1", ";tag=a")),
        *({"parameters": parameters(kid=kid), "sign": NOBODY.sign} for kid in (KID, BEARER_KID, STRANGER_KID)),
        {"sign": lambda _: b""},
        {"sign": lambda base: KEYS[KID].sign(base) + b"x"},
        *({"label": label} for label in ("Sig", "", "1a", "a b")),
        *({"host": host, "authority": host.lower()} for host in HOSTS),
        *({"path": path} for path in PATHS),
        *({"query": query} for query in QUERIES),
        *({"method": method} for method in METHODS),
    ],
)
def test_a_signature_that_says_too_little_or_something_odd_is_refused(changed: dict[str, Any]) -> None:
    """Each is signed as it stands, so only what it says, or leaves out, is wrong with it."""
    said = verdict(Case(**changed).scope())
    assert isinstance(said, str), said


@pytest.mark.parametrize("more", [b"proxy:8080", b"elsewhere"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_second_host_is_refused(more: bytes, at: int) -> None:
    """Before or after the signed one, equal or not: a signature is for one authority."""
    scope = Case().scope()
    scope["headers"].insert(at, (b"host", more))
    assert isinstance(verdict(scope), str)


def test_a_signature_that_names_hmac_is_told_apart_by_what_it_says_alone() -> None:
    """Known, unknown or no key: one refusal, before any key is looked up."""
    for kid in (KID, BEARER_KID, STRANGER_KID):
        scope = Case(parameters=parameters(kid=kid, alg='"hmac-sha256"')).scope()
        asked: list[str] = []
        with pytest.raises(HmacSigned) as refused:
            read_signature(scope, lambda kid, asked=asked: asked.append(kid) or b"", NOW_MS)  # type: ignore[misc]
        assert (refused.value.kid, asked) == (kid, [])


def bent(rng: random.Random, scope: dict[str, Any]) -> dict[str, Any]:
    """*scope* with one header changed, doubled, split, taken away, or exchanged."""
    headers = list(scope["headers"])
    at = rng.randrange(len(headers))
    name, value = headers[at]
    place = rng.randrange(len(value) + 1)
    byte = bytes([rng.choice(b' \t=:;,()"\\0aA+/-_\n\r\x00\x7f\xe9')])
    changes: list[list[tuple[bytes, bytes]]] = [
        [(name, value[:place] + byte + value[place:])],
        [(name, value[:place] + byte + value[place + 1 :])],
        [(name, value[:place] + value[place + 1 :])],
        [(name, value), (name, value)],
        [(name, value[:place]), (name, value[place:])],
        [],
        [(name, rng.choice((b" %b", b"%b ", b"%b, ", b"%b;a", b"x=1, %b")) % value)],
        [(name, rng.choice(headers)[1])],
    ]
    headers[at : at + 1] = rng.choice(changes)
    changed = {**scope, "headers": headers}
    return changed | ({SCOPE_HEADERS: list(headers)} if SCOPE_HEADERS in scope else {})


def test_a_bent_request_is_refused_or_says_what_was_signed() -> None:
    """No other verdict and no other error, whatever happens to a header on its way. Seeded."""
    rng = random.Random(9421)
    cases = (
        Case(),
        Case(digest="", covered=COVERED),
        Case(namespace="acme", covered=(*COVERED, NAMESPACE, DIGEST)),
        Case(digest="sha-512", host="Proxy", authority="proxy"),
    )
    refused = 0
    for number in range(CASES):
        case = with_fields(cases[number % len(cases)], parameters=parameters(nonce=f"nonce-{number:08}"))
        whole, said = verdict(case.scope()), verdict(bent(rng, case.scope()))
        if isinstance(said, str):
            refused += 1
        else:
            assert isinstance(whole, Signed)
            assert (said.kid, said.nonce, said.created_s) == (whole.kid, whole.nonce, whole.created_s)
            assert said.digests in ({}, whole.digests)
    assert CASES / 2 < refused < CASES
