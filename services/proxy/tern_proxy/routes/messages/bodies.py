"""Encoding of message bodies in answers: the parameter `encoding` of every route that returns
bodies.
"""

from collections.abc import Mapping

from tern_proxy.core.reading.delivery import ENCODINGS, PUT_BODY, PutBody, put_bytes
from tern_proxy.routes.route import Schema, in_query
from tern_wire.errors import InvalidField
from tern_wire.paths import MSGPACK, OCTETS

_ENCODING: Schema = {"type": "string", "enum": list(ENCODINGS)}
# For routes without NDJSON.
ENCODING_IN_JSON = in_query("encoding", _ENCODING, "Encoding of bodies in JSON.")
ENCODING = in_query(
    "encoding",
    _ENCODING,
    "Encoding of bodies in JSON and NDJSON; by default by content type. Unfit bodies become `body_base64`.",
)


def put_body_of(query: Mapping[str, str], kind: str) -> PutBody:
    """Return the writer of bodies: by `encoding` in JSON and NDJSON; as bytes elsewhere, where
    `encoding` is refused.
    """
    encoding = query.get("encoding", "")
    if encoding and encoding not in ENCODINGS:
        reason = f"'encoding' is '{encoding[:20]}'; use {', '.join(ENCODINGS)}"
        raise InvalidField(reason=reason, pointer="query/encoding")
    if kind in {MSGPACK, OCTETS}:
        if encoding:
            raise InvalidField(reason=f"'encoding' has no meaning for {kind}", pointer="query/encoding")
        return put_bytes
    return PUT_BODY[encoding]
