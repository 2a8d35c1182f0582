"""Signatures of the SDK: written from a template, and to the byte what the library of RFC 9421 makes of the same request."""

import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from http_message_signatures import HTTPMessageSigner
from http_message_signatures.algorithms import ED25519
from http_message_signatures.resolvers import MappingKeyResolver
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_client.transport import signing
from tern_client.transport.exchange import Request

KID, SECRET, NOW_S = "S" * 16, bytes(range(32)), 1_800_000_000
COVERED = ("@method", "@path", "@query", "@authority")
HOSTS = ("http://127.0.0.1:8080", "https://Proxy.Example", "https://proxy:443", "http://proxy:80", "http://proxy:443", "https://[::1]:8443",
         "http://[2001:DB8::1]", "http://proxy:080", "https://proxy:8443/below")  # fmt: skip
PATHS = st.from_regex(r"(/[A-Za-z0-9._~:@!$&'()*+,;=-]{0,8}(%[0-9A-F]{2})?){0,4}", fullmatch=True)
QUERIES = st.from_regex(r"(\?[A-Za-z0-9._~:@!$&'()*+,;=/?-]{0,20}(%[0-9A-F]{2})?)?", fullmatch=True)
NAMESPACES = st.sampled_from([(), (("MQ-Namespace", "acme"),), (("mq-namespace", "a_b"), ("MQ-Tag", "x"))])
REQUESTS = st.builds(
    lambda method, path, query, headers, body: Request(method, path + query, headers, body),
    st.sampled_from(["GET", "POST", "DELETE"]), PATHS, QUERIES, NAMESPACES, st.sampled_from([b"", b"hello", bytes(1_024)]),
)  # fmt: skip


class _Outgoing:
    """A request as the library reads it, and the headers that it adds."""

    def __init__(self, request: Request, endpoint: str) -> None:
        self.method, self.url = request.method, endpoint + request.path
        self.headers = {name: value for name, value in request.headers if name.lower() == "mq-namespace"}


def by_library(request: Request, endpoint: str, nonce: str) -> tuple[bytes, dict[str, str]]:
    """What the library signs, and the headers that it adds."""
    keys = MappingKeyResolver(public_keys={}, private_keys={KID: Ed25519PrivateKey.from_private_bytes(SECRET)})
    outgoing = _Outgoing(request, endpoint)
    made = HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=keys)
    covered = (*COVERED, "mq-namespace") if outgoing.headers else COVERED
    created = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
    given: dict[str, Any] = {"key_id": KID, "created": created, "nonce": nonce, "covered_component_ids": covered}
    base = made.prepare(_Outgoing(request, endpoint), body=request.body or None, **given).signature_base
    made.sign(outgoing, body=request.body or None, **given)
    return base, {
        name: outgoing.headers[name]
        for name in ("Signature-Input", "Signature", "Content-Digest")
        if name in outgoing.headers
    }


@settings(deadline=None, max_examples=200)
@given(REQUESTS, st.sampled_from(HOSTS))
def test_the_template_says_what_the_library_says_to_the_byte(request: Request, endpoint: str) -> None:
    """The signed bytes and all three headers: with and without a body, a query, a namespace, a port."""
    headers = dict(signing.signer(KID, SECRET, lambda: NOW_S + 0.9)(request, endpoint))
    nonce = headers["Signature-Input"].rpartition('nonce="')[2].rstrip('"')
    base, expected = by_library(request, endpoint, nonce)
    text = headers["Signature-Input"].removeprefix("pyhms=")
    parameters = text[text.index(")") + 1 :]
    assert signing.signature_base(request, endpoint, parameters)[0] == base
    assert headers == expected


@pytest.mark.parametrize("request_", [Request("GET", "/v1/\ntopics"), Request("GET", "/é"), Request("GET", "/", (("MQ-Namespace", "a\nb"),))])  # fmt: skip
def test_what_cannot_be_sent_is_not_signed(request_: Request) -> None:
    """A line's end would make two lines of one; nothing is guessed."""
    with pytest.raises(ValueError):
        signing.signer(KID, SECRET)(request_, "https://proxy")


def test_each_signature_has_its_own_nonce() -> None:
    """128 bits of chance, in 22 characters."""
    sign, request = signing.signer(KID, SECRET), Request("GET", "/v1/topics")
    nonces = {dict(sign(request, "https://proxy"))["Signature-Input"][-23:-1] for _ in range(100)}
    assert len(nonces) == 100
