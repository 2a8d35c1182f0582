"""The SDK's form of a signature is read without the library, and never with another verdict than the library's."""

import base64
import hashlib
import hmac
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tern_client.transport.exchange import Request
from tern_client.transport.signing import hmac_signer, signer
from tern_proxy.access import signed_requests
from tern_proxy.access.signed_requests import NotSigned, Signed, VerifyingKey, read_any_signature, read_signature
from tern_proxy.core.access.namespaces import SCOPE_HEADERS
from tern_proxy.core.access.signature_form import read_form
from tern_wire.limits import SIGNATURE_WINDOW_MS
from tern_wire.principals.client_keys import ED25519, HMAC

CASES = 2_000
NOW_MS = 1_800_000_000_000
KID, OTHER_KID, BEARER_KID, STRANGER_KID = "S" * 16, "O" * 16, "B" * 16, "N" * 16
KEYS = {
    kid: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, kid in enumerate((KID, OTHER_KID), 1)
}
HMAC_KID, OTHER_HMAC_KID = "H" * 16, "G" * 16
SECRETS = {HMAC_KID: b"h" * 32, OTHER_HMAC_KID: b"g" * 32}
# What an unknown kid is verified with.
NOBODY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KNOWN = {
    **{kid: VerifyingKey(public_key=key.public_key().public_bytes_raw()) for kid, key in KEYS.items()},
    **{kid: VerifyingKey(secret=secret) for kid, secret in SECRETS.items()},
    BEARER_KID: VerifyingKey(),
}
Sign = Callable[[bytes], bytes]


def mac(secret: bytes) -> Sign:
    """What signs with that secret."""
    return lambda base: hmac.digest(secret, base, "sha256")


def cut(sign: Sign, kept: int, more: int, base: bytes) -> bytes:
    """A signature of another size."""
    return sign(base)[:kept] + bytes(more)


COVERED = ("@method", "@path", "@query", "@authority")
NAMESPACE, DIGEST = "mq-namespace", "content-digest"
# What is no plain host, or one that is written in another way.
HOSTS = (
    "", "a b", "proxy:", "proxy:080", "proxy:0", "proxy:65536", "user@proxy", "[::g]", "[1:2]", "[::1", "[v1.a]", "[::1%251]", "[::ffff:10.0.0.1]",
    "[::1]:80", "é", "a/b", "a?b", "a#b", "a_b", "v1:443", "10.0.0.1", "PROXY:80", "a%41", "a..b", "-",
)  # fmt: skip
PATHS = (
    "*",
    "/a b",
    "/a%2",
    "/a%zz",
    "/a%C3%a9",
    "/é",
    "/a#b",
    "/a?b",
    "",
    "x",
    "//",
    "/../a",
    "/[x]",
    '/"',
    "/^",
    "/a\nb",
    "/a|b",
    "/%00",
)
QUERIES = ("a b", "%", "é", "a#b", "[1]", '"', "a|b", "?", "/", "%7e", "a=1&a=2", "a\n")
METHODS = ("get", "M-SEARCH", "Post", "", "ÄB", "G\n", "X" * 16, "X" * 17)


# What is signed ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Case:
    """A request as it is sent, and what its signature says."""

    method: str = "POST"
    path: str = "/v1/topics/orders/messages"
    query: str = "tag=a&key=b"
    scheme: str = "http"
    host: str = "proxy:8080"
    authority: str = "proxy:8080"
    namespace: str | None = None
    # "" for no body, or the algorithm of its digest.
    digest: str = "sha-256"
    covered: tuple[str, ...] = (*COVERED, DIGEST)
    label: str = "pyhms"
    parameters: str = ""
    alg: str = ED25519
    kid: str = KID
    sign: Sign = field(default=KEYS[KID].sign, repr=False)

    def scope(self) -> dict[str, Any]:
        """The request with its signature, made without the library, as a server gets it."""
        headers = [(b"host", self.host.encode()), (b"accept", b"*/*")]
        values = {"@method": self.method, "@path": self.path, "@query": f"?{self.query}", "@authority": self.authority}
        if self.namespace is not None:
            values[NAMESPACE] = self.namespace
            headers.append((NAMESPACE.encode(), self.namespace.encode()))
        if self.digest:
            hashed = (hashlib.sha256 if self.digest == "sha-256" else hashlib.sha512)(b"hello").digest()
            values[DIGEST] = f"{self.digest}=:{base64.b64encode(hashed).decode()}:"
            headers += [(DIGEST.encode(), values[DIGEST].encode()), (b"content-length", b"5")]
        names = " ".join(f'"{name}"' for name in self.covered)
        text = f"({names}){self.parameters}"
        lines = [f'"{name}": {values.get(name, "")}' for name in self.covered] + [f'"@signature-params": {text}']
        signature = base64.b64encode(self.sign("\n".join(lines).encode())).decode()
        headers += [
            (b"signature-input", f"{self.label}={text}".encode()),
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


def parameters(
    *, created: object = NOW_MS // 1_000, kid: str = KID, alg: str = "ed25519", nonce: str = "n" * 22
) -> str:
    """As the SDK writes them; what is "" is left out."""
    told = f";created={created};keyid={quoted(kid)}"
    return told + (f";alg={quoted(alg)}" if alg else "") + (f";nonce={quoted(nonce)}" if nonce else "")


def quoted(text: str) -> str:
    """A string of RFC 9651."""
    return f'"{text}"'


def plain_case(rng: random.Random) -> Case:
    """What the SDK could have made: half of all cases stay so, and are let through."""
    namespace, digest = rng.choice((None, None, "acme")), rng.choice(("", "sha-256", "sha-256", "sha-512"))
    hosts = (("proxy:8080", "proxy:8080"), ("Proxy", "proxy"), ("proxy:80", "proxy"), ("[::1]:8080", "[::1]:8080"))
    host, authority = rng.choice(hosts)
    skew_s = rng.choice((0, 0, 0, 0, -299, 300, -301))
    alg, kid, sign = rng.choice(((ED25519, KID, KEYS[KID].sign), (HMAC, HMAC_KID, mac(SECRETS[HMAC_KID]))))
    return Case(
        alg=alg,
        kid=kid,
        sign=sign,
        method=rng.choice(("GET", "POST", "PATCH", "DELETE")),
        path=rng.choice(
            ("/", "/v1/topics", "/v1/topics/orders/messages", "/v1/topics/a%20b/x", "//double", "/a;b=c@d:e")
        ),
        query=rng.choice(("", "", "tag=a&key=b", "a=%C3%A9", "?x/y@z:")),
        host=host,
        authority=authority,
        namespace=namespace,
        digest=digest,
        covered=(*COVERED, *((NAMESPACE,) if namespace is not None else ()), *((DIGEST,) if digest else ())),
        label=rng.choice(("pyhms", "sig1", "*a.b-c_d")),
        parameters=parameters(
            created=NOW_MS // 1_000 + skew_s, kid=kid, alg=alg, nonce=f"nonce-{rng.getrandbits(60):015}"
        ),
    )


def odd_case(rng: random.Random) -> Case:
    """A case whose signature holds, or would, and that says something unusual, too little, or something wrong."""
    case = plain_case(rng)
    now_s = NOW_MS // 1_000
    told = partial(parameters, alg=case.alg, kid=case.kid)
    changes: list[dict[str, Any]] = [
        {"covered": tuple(rng.sample(case.covered, len(case.covered)))},
        {"covered": tuple(name for name in case.covered if name != rng.choice(case.covered))},
        {"covered": (*case.covered, rng.choice(("accept", "host", "@scheme", "@method", "missing", DIGEST, NAMESPACE)))},
        {"path": rng.choice(PATHS)},
        {"query": rng.choice(QUERIES)},
        {"method": rng.choice(METHODS)},
        {"scheme": rng.choice(("https", "ws", ""))},
        {"parameters": told(kid=rng.choice((*KNOWN, *KNOWN, STRANGER_KID, "", "short", "S" * 15 + "-")))},
        {"parameters": told(alg=rng.choice(("", HMAC, ED25519, "ED25519", "HMAC-SHA256", "rsa-v1_5-sha256")))},
        {"parameters": told(nonce=rng.choice(("", "1234567", "12345678", "n" * 64, "n" * 65, "a b c d e", "+/+/+/+/")))},
        {"parameters": told(created=rng.choice(("0", "-1", f"0{now_s}", f"{now_s}.0", "9" * 15, "9" * 16, "a", "?1")))},
        {"parameters": told() + f";expires={rng.choice((now_s + 9, now_s - 9, now_s, 'x'))}"},
        {"parameters": told() + rng.choice((';tag="a"', ";tag=a", ";x=1", ";created=1", ";"))},
        {"parameters": told().replace(";nonce", rng.choice((" ;nonce", "; nonce", ";;nonce")))},
        {"sign": rng.choice((NOBODY.sign, mac(bytes(32)), mac(b""))), "parameters": told(kid=rng.choice((case.kid, STRANGER_KID, BEARER_KID)))},
        {"sign": rng.choice((KEYS[KID].sign, mac(SECRETS[HMAC_KID]), mac(KNOWN[KID].public_key))), "parameters": parameters(alg=rng.choice((ED25519, HMAC)), kid=rng.choice((*KNOWN,)))},
        {"sign": partial(cut, case.sign, rng.choice((0, 31, 32, 63)), rng.choice((0, 1, 32)))},
        {"label": rng.choice(("Sig", "", "1a", "a" * 32, "a" * 33, "a b", "é"))},
        {"namespace": rng.choice((" acme", "a b", "é", "", "a\x01b", "a\tb", "x" * 300)), "covered": (*COVERED, NAMESPACE, DIGEST)},
    ]  # fmt: skip
    host = rng.choice(HOSTS)
    changes += [{"host": host, "authority": host.lower()}] * 3
    return with_fields(case, **rng.choice(changes))


def bent(rng: random.Random, scope: dict[str, Any]) -> dict[str, Any]:
    """*scope* with one header changed, doubled, split, taken away, or exchanged for another request's."""
    headers = list(scope["headers"])
    weights = [3 if name in {b"signature", b"signature-input", b"content-digest"} else 1 for name, _ in headers]
    (at,) = rng.choices(range(len(headers)), weights)
    name, value = headers[at]
    place = rng.randrange(len(value) + 1)
    byte = bytes([rng.choice(b' \t=:;,()"\\0aA+/-_\n\r\x00\x7f\xe9')])
    match rng.randrange(9):
        case 0:
            headers[at] = (name, value[:place] + byte + value[place:])
        case 1:
            headers[at] = (name, value[:place] + byte + value[place + 1 :])
        case 2:
            headers[at] = (name, value[:place] + value[place + 1 :])
        case 3 if value:
            flipped = value[place - 1] ^ (1 << rng.randrange(8))
            headers[at] = (name, value[: place - 1] + bytes([flipped]) + value[place:] if place else value)
        case 4:
            headers.insert(rng.randrange(len(headers) + 1), headers[at])
        case 5:
            headers[at : at + 1] = [(name, value[:place]), (name, value[place:])]
        case 6:
            del headers[at]
        case 7:
            headers[at] = (name, rng.choice((b" %b", b"%b ", b"%b, ", b"%b;a", b"x=1, %b")) % value)
        case _:
            other = dict(plain_case(rng).scope()["headers"])
            headers[at] = (name, other.get(name, value))
    changed = {**scope, "headers": headers}
    return changed | ({SCOPE_HEADERS: list(headers)} if SCOPE_HEADERS in scope else {})


def any_scope(rng: random.Random) -> dict[str, Any]:
    """A request that is as it should be, is odd, or was bent on its way."""
    case = plain_case(rng) if rng.random() < 0.6 else odd_case(rng)
    scope = case.scope()
    return bent(rng, scope) if rng.random() < 0.5 else scope


# Verdicts ----------------------------------------------------------------------------------------------------------
def verdict(read: Any, scope: dict[str, Any]) -> tuple[Signed | tuple[str, str], list[str]]:
    """What *read* says of the request, with the reason for the audit; and which kids it has asked for."""
    asked: list[str] = []

    def find(kid: str) -> VerifyingKey | None:
        asked.append(kid)
        return KNOWN.get(kid)

    try:
        return read(scope, find, NOW_MS), asked
    except NotSigned as error:
        return (error.kid, error.reason), asked


def test_both_ways_of_reading_have_one_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sent: the same key, nonce and digests, or the same refusal for the same reason. Seeded; each way is taken often."""
    by_library = 0

    def counted(*arguments: Any) -> Signed:
        nonlocal by_library
        by_library += 1
        return read_any_signature(*arguments)

    monkeypatch.setattr(signed_requests, "read_any_signature", counted)
    rng = random.Random(9421)
    let_through = refused_at_once = 0
    for _ in range(CASES):
        scope, before = any_scope(rng), by_library
        said = verdict(read_signature, scope)
        assert said == verdict(read_any_signature, scope), scope
        if by_library == before:
            let_through += isinstance(said[0], Signed)
            refused_at_once += not isinstance(said[0], Signed)
    assert let_through > CASES / 5 and refused_at_once > CASES / 12 and by_library > CASES / 4


@pytest.mark.parametrize("scheme", ["http", "https", "ws", ""])
def test_every_odd_target_has_one_verdict(scheme: str) -> None:
    """Hosts, paths, queries and methods one by one, each signed as it stands."""
    changes: list[dict[str, Any]] = [{"host": host, "authority": host.lower()} for host in HOSTS]
    changes += [{"host": host, "authority": host.lower().rpartition(":")[0]} for host in HOSTS]
    changes += [
        {name: value} for name, values in (("path", PATHS), ("query", QUERIES), ("method", METHODS)) for value in values
    ]
    for change in changes:
        scope = Case(scheme=scheme, parameters=parameters(), **change).scope()
        assert verdict(read_signature, scope) == verdict(read_any_signature, scope), scope


@pytest.mark.parametrize("body", [b"", b"hello"])
@pytest.mark.parametrize("namespace", [(), (("MQ-Namespace", "acme"),)])
@pytest.mark.parametrize("algorithm", [ED25519, HMAC])
def test_the_sdk_writes_the_form_that_is_read(
    body: bytes, namespace: tuple[tuple[str, str], ...], algorithm: str
) -> None:
    """Otherwise its signatures would still hold, at the library's price."""
    request = Request("POST", "/v1/topics/orders/messages?tag=a", namespace, body)
    make = signer if algorithm == ED25519 else hmac_signer
    added = make(KID, bytes([1]) * 32, lambda: NOW_MS / 1_000)(request, "https://proxy:8443")
    fields = [(name.lower().encode(), value.encode()) for name, value in (("Host", "proxy:8443"), *namespace, *added)]
    path, query = b"/v1/topics/orders/messages", b"tag=a"
    written = read_form("POST", "https", path, query, fields, bool(body), bool(namespace))
    assert written is not None
    assert (written.kid, written.algorithm, written.created_s) == (KID, algorithm, NOW_MS // 1_000)
    if algorithm == ED25519:
        KEYS[KID].public_key().verify(written.signature, written.base)
    else:
        assert written.signature == hmac.digest(bytes([1]) * 32, written.base, "sha256")
    assert read_form("POST", "https", path, query, fields, True, True) is None or (body and namespace)


def test_long_targets_are_read_and_not_kept() -> None:
    """What is kept of targets is bounded; a long one costs a little more, and is decided in the same way."""
    case = Case(parameters=parameters(), path="/" + "x" * 3_000)
    assert verdict(read_signature, case.scope())[0] == verdict(read_any_signature, case.scope())[0]
    assert isinstance(verdict(read_signature, case.scope())[0], Signed)


def test_the_window_is_the_same_to_the_millisecond() -> None:
    """The edges of it, both ways."""
    scope = Case(parameters=parameters()).scope()
    secret = Case(sign=mac(SECRETS[HMAC_KID]), parameters=parameters(alg=HMAC, kid=HMAC_KID)).scope()
    for skew_ms, is_held in ((SIGNATURE_WINDOW_MS, True), (SIGNATURE_WINDOW_MS + 1, False)):
        for now_ms in (NOW_MS + skew_ms, NOW_MS - skew_ms):
            for read in (read_signature, read_any_signature):
                for sent in (scope, secret):
                    said = verdict(lambda scope, find, _, read=read, now_ms=now_ms: read(scope, find, now_ms), sent)
                    assert isinstance(said[0], Signed) == is_held


@pytest.mark.parametrize("read", [read_signature, read_any_signature])
def test_the_kind_of_a_key_is_the_algorithm_of_its_signatures(read: Any) -> None:
    """No public key is a secret, and no secret makes a public key; whatever the request says, or does not say."""
    by_hmac, by_ed25519 = mac(SECRETS[HMAC_KID]), KEYS[KID].sign
    # HMAC fills a key up with zeros: that of no bytes at all is the same.
    of_nobody = {mac(bytes(32))(b""), NOBODY.sign(b"")}
    of_secret = Ed25519PrivateKey.from_private_bytes(SECRETS[HMAC_KID]).sign
    for alg, kid, sign, is_held in (
        (ED25519, KID, by_ed25519, True),
        ("", KID, by_ed25519, True),
        (HMAC, HMAC_KID, by_hmac, True),
        # Without a name it is Ed25519, so that what verifying costs tells nobody of which kind a key is.
        ("", HMAC_KID, by_hmac, False),
        (ED25519, HMAC_KID, by_hmac, False),
        (HMAC, KID, by_ed25519, False),
        # Everybody knows a public key: it must not be the secret of anything, nor must nothing, nor what nobody has.
        (HMAC, KID, mac(KNOWN[KID].public_key), False),
        ("", KID, mac(KNOWN[KID].public_key), False),
        (HMAC, KID, mac(b""), False),
        (HMAC, KID, mac(bytes(32)), False),
        (HMAC, BEARER_KID, mac(b""), False),
        (HMAC, BEARER_KID, mac(bytes(32)), False),
        (HMAC, STRANGER_KID, mac(bytes(32)), False),
        # The other way round: an Ed25519 key made of a secret, and the private key that everybody knows.
        (ED25519, HMAC_KID, of_secret, False),
        ("", HMAC_KID, of_secret, False),
        (ED25519, HMAC_KID, NOBODY.sign, False),
    ):
        scope = Case(sign=sign, parameters=parameters(alg=alg, kid=kid)).scope()
        said = verdict(read, scope)[0]
        assert isinstance(said, Signed) == is_held, (alg, kid)
        # What anybody can know does not verify; what an unknown key is verified with does, and is refused for that.
        if not isinstance(said, Signed):
            assert (said[1] == "no such key") == (sign(b"") in of_nobody), (alg, kid, said)


def test_what_verifying_costs_follows_from_what_the_request_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known, of another kind, of no kind, or unknown: one look-up, and one verification of the algorithm that is named."""
    made: list[bytes] = []
    real = signed_requests._digest

    def counted(begun: hmac.HMAC, base: bytes) -> bytes:
        made.append(base)
        return real(begun, base)

    monkeypatch.setattr(signed_requests, "_digest", counted)
    for read in (read_signature, read_any_signature):
        for kid in (HMAC_KID, KID, BEARER_KID, STRANGER_KID):
            scope = Case(sign=mac(b"wrong"), parameters=parameters(alg=HMAC, kid=kid)).scope()
            assert verdict(read, scope) == ((kid, "the signature does not hold"), [kid])
            assert len(made) == 1
            made.clear()
            scope = Case(sign=NOBODY.sign, parameters=parameters(alg=ED25519, kid=kid)).scope()
            assert (isinstance(verdict(read, scope)[0], Signed), made) == (False, [])
