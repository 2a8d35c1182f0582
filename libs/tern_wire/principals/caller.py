"""The principal of an admin request: a sealed field in the head of the link request.

    principal: [name, MAC 16]
    MAC = BLAKE2b(a key derived from the cluster key;
                  code 2, size of the name 2, name, the head without this field)

Proxies and brokers have that key.

The handshake of the link proves that its other end has the cluster key and is a proxy. The seal
binds the principal to this one request, so the name cannot be moved to another request. A broker
accepts it from proxies only, writes it into its log, and decides nothing by it: the proxy that
authenticated the client decides.
"""

import hmac
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import PRINCIPAL_NAME_LENGTH_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.requests import RequestCode

FIELD = "principal"
MAC_SIZE_BYTES = 16
_PREFIX = struct.Struct(">HH")
# Admin requests: they carry the principal.
TELLING = frozenset(
    {
        *(RequestCode.CREATE_TOPIC, RequestCode.DELETE_TOPIC, RequestCode.CREATE_GROUP, RequestCode.DELETE_GROUP),
        *(RequestCode.SEEK, RequestCode.PURGE, RequestCode.REDRIVE, RequestCode.RESOLVE_TRANSACTION),
        *(RequestCode.ALTER_PRODUCER_GROUP, RequestCode.DELETE_PRODUCER_GROUP, RequestCode.PUT_PRINCIPAL),
    }
)


class CallerSeal:
    """Writes principals into heads, and reads them. Immutable."""

    __slots__ = ("_key",)

    def __init__(self, cluster_key: bytes) -> None:
        self._key = blake2b(b"caller", key=cluster_key, digest_size=32).digest()

    def put(self, head: Mapping[str, Any], code: int, principal: str) -> dict[str, Any]:
        """*head*, of a request of that *code*, with *principal*."""
        own = {name: value for name, value in head.items() if name != FIELD}
        return {**own, FIELD: [principal, self._mac(own, code, principal)]}

    def take(self, head: dict[str, Any], code: int) -> str:
        """Remove the principal from *head* and return it; "" when there is none.

        LinkBodyMalformed unless a proxy has sealed it.
        """
        found = head.pop(FIELD, None)
        if found is None:
            return ""
        if (
            not isinstance(found, list)
            or len(found) != 2
            or not isinstance(found[0], str)
            or not isinstance(found[1], bytes)
        ):
            raise LinkBodyMalformed(reason="a malformed principal")
        principal, mac = found
        if len(principal) > PRINCIPAL_NAME_LENGTH_MAX or not hmac.compare_digest(mac, self._mac(head, code, principal)):
            raise LinkBodyMalformed(reason="a principal that no proxy has sealed for this request")
        return str(principal)

    def _mac(self, head: Mapping[str, Any], code: int, principal: str) -> bytes:
        name = principal.encode("utf-8", "surrogatepass")
        prefix = _PREFIX.pack(code, len(name))
        return blake2b(prefix + name + encode_msgpack(head), key=self._key, digest_size=MAC_SIZE_BYTES).digest()
