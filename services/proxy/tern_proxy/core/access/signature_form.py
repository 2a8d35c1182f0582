r"""The one form in which the SDK writes a signature, read without a parser: by one regular expression, and signed bytes from one template. Pure.

    signature-input: pyhms=("@method" "@path" "@query" "@authority" "mq-namespace" "content-digest");created=1800000000;keyid="<kid>";alg="ed25519";nonce="<nonce>"
    signature:       pyhms=:<64 bytes in base64>:         of alg="hmac-sha256" 32 bytes
    content-digest:  sha-256=:<32 bytes in base64>:          or sha-512, and 64

`mq-namespace` and `content-digest` stand there where the request has them; the label may be another one.

Law: what is read here means, to the byte, what the general library finds in it (`tests/unit/proxy/access/test_signature_form.py` compares them). So
whatever is written in any other way, however harmless, is None here: another order, a space, a leading zero, a field in two lines, a path that
is not plain RFC 3986. The library decides about that, at fifteen times the price.
Reference: RFC 9421 sections 2.2, 2.3, 2.5, 4; RFC 9530 section 2; RFC 3986 sections 3.2 to 3.4.
"""

import re
from binascii import a2b_base64
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address

from msgspec import Struct

from tern_proxy.core.access.namespaces import HEADER
from tern_wire.limits import SIGNATURE_NONCE_LENGTH_MAX, SIGNATURE_NONCE_LENGTH_MIN
from tern_wire.principals.client_keys import ED25519, HMAC, KID_LENGTH

RawHeaders = Sequence[tuple[bytes, bytes]]
_INPUT, _SIGNATURE, _DIGEST = b"signature-input", b"signature", b"content-digest"
# What is read once, and means something else if it stands there twice.
_SINGLE = frozenset({_INPUT, _SIGNATURE, _DIGEST, HEADER, b"host", b"content-length", b"transfer-encoding"})
# Signature-Input, Signature and Content-Digest ("" when there is none), a line each. The label is the same in both, and is all that is not signed.
# A number without a leading zero is written again as it was read; 15 digits are all that RFC 9651 allows.
_WRITTEN = re.compile(
    rb"(?P<label>[a-z*][a-z0-9_.*-]{0,31}+)="
    rb'(\("@method" "@path" "@query" "@authority"( "mq-namespace")?( "content-digest")?\)'
    rb';created=([1-9][0-9]{0,14});keyid="([A-Za-z0-9]{%d})";alg="(ed25519|hmac-sha256)";nonce="([A-Za-z0-9_-]{%d,%d})")'
    rb"\n(?P=label)=:([A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==):"
    rb"\n(?:sha-256=:([A-Za-z0-9+/]{43}=):|sha-512=:([A-Za-z0-9+/]{86}==):|[^\n]*)"
    % (KID_LENGTH, SIGNATURE_NONCE_LENGTH_MIN, SIGNATURE_NONCE_LENGTH_MAX)
)
# As client_keys.py calls the kinds of keys, and how long a signature of each is in base64.
_ALGORITHMS = {b"ed25519": (ED25519, 88), b"hmac-sha256": (HMAC, 44)}
_PLAIN = rb"A-Za-z0-9._~!$&'()*+,;=:@/\-"
_PATH = re.compile(rb"/[%b]*+(?:%%[0-9A-Fa-f]{2}[%b]*+)*+" % (_PLAIN, _PLAIN))
_QUERY = re.compile(rb"[?%b]*+(?:%%[0-9A-Fa-f]{2}[?%b]*+)*+" % (_PLAIN, _PLAIN))
_METHOD = re.compile(r"[A-Z]{1,16}")
_NAMESPACE = re.compile(rb"[!-~]+")
_HOST = re.compile(rb"(?:([A-Za-z0-9.-]+)|\[([0-9A-Fa-f:.]+)\])(?::([1-9][0-9]{0,4}))?")
_DEFAULT_PORTS = {"http": b"80", "https": b"443"}
# Requests go to few targets again and again: these need not be looked at twice. 2 MiB, whatever strangers ask for.
_TARGETS_KEPT, _TARGET_KEPT_LENGTH_MAX = 1_024, 1_024


class WrittenSignature(Struct, frozen=True, gc=False):
    """A signature as it is written, not verified. *algorithm*: ED25519 or HMAC, which it says it is; *created_s*: seconds since 1970; *base*: what
    must have been signed.

    *digests*: what the body must hash to, by algorithm; none if `content-digest` is not covered. A struct, because there is one of it a request.
    """

    kid: str
    nonce: str
    algorithm: str
    created_s: int
    base: bytes
    signature: bytes
    digests: dict[str, bytes]


def read_form(
    method: str, scheme: str, path: bytes, query: bytes, fields: RawHeaders, needs_digest: bool, needs_namespace: bool
) -> WrittenSignature | None:
    """The signature among *fields* (names in lower case, as ASGI has them); None unless all of it is in the form of the module's docstring.

    *path*: as it was sent, without the query; *query*: without its `?`. *needs_...*: what must be covered, or it is None.
    """
    lines = dict(fields)
    if len(lines) != len(fields) and not _are_single(fields):
        return None
    digest = lines.get(_DIGEST, b"")
    match = _WRITTEN.fullmatch(b"%b\n%b\n%b" % (lines.get(_INPUT, b""), lines.get(_SIGNATURE, b""), digest))
    if match is None:
        return None
    text, with_namespace, with_digest, created, kid, alg, nonce, signature, sha256, sha512 = match.groups()[1:]
    algorithm, signature_length = _ALGORITHMS[alg]
    if len(signature) != signature_length:
        return None
    host = lines.get(b"host", b"")
    is_short = len(path) + len(query) + len(host) <= _TARGET_KEPT_LENGTH_MAX
    base = (_begin_kept if is_short else begin_of_base)(method, scheme, host, path, query)
    if base is None or (needs_namespace and not with_namespace) or (needs_digest and not with_digest):
        return None
    digests: dict[str, bytes] = {}
    if with_namespace:
        namespace = lines.get(HEADER, b"")
        if not _NAMESPACE.fullmatch(namespace):
            return None
        base += b'"mq-namespace": %b\n' % namespace
    if with_digest:
        if sha256:
            digests["sha-256"] = a2b_base64(sha256)
        elif sha512:
            digests["sha-512"] = a2b_base64(sha512)
        else:
            return None
        base += b'"content-digest": %b\n' % digest
    base += b'"@signature-params": ' + text
    return WrittenSignature(kid.decode(), nonce.decode(), algorithm, int(created), base, a2b_base64(signature), digests)


def begin_of_base(method: str, scheme: str, host: bytes, path: bytes, query: bytes) -> bytes | None:
    """The lines of the signature base for `@method`, `@path`, `@query` and `@authority`; None when one of them is not plain."""
    match = _HOST.fullmatch(host)
    if match is None or scheme not in _DEFAULT_PORTS:
        return None
    if not (_METHOD.fullmatch(method) and _PATH.fullmatch(path) and _QUERY.fullmatch(query)):
        return None
    name, address, port = match.groups()
    if name is None:
        try:
            IPv6Address(address.decode())
        except ValueError:
            return None
        name = b"[%b]" % address
    # The scheme's own port is not part of the authority.
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        name = b"%b:%b" % (name, port)
    lines = (method.encode(), path, query, name.lower())
    return b'"@method": %b\n"@path": %b\n"@query": ?%b\n"@authority": %b\n' % lines


_begin_kept = lru_cache(maxsize=_TARGETS_KEPT)(begin_of_base)


def _are_single(fields: RawHeaders) -> bool:
    found = [name for name, _ in fields if name in _SINGLE]
    return len(found) == len(set(found))
