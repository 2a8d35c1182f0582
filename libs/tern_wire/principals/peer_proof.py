"""Peer proof: a header that signs a request without a body with the 32-byte cluster key.

Only for routes of nodes.

    MQ-Peer-Proof: 1 broker-a-2 1795000000123 00112233445566778899aabbccddeeff 9f86d081...
                   |     |            |                       |                    |
             version    node   client time, ms     nonce, 16 bytes in hex   HMAC-SHA256 in hex

The mac covers a constant label, method, path with query, node, group id, time and nonce, each with
its length before it. A proof is good within 60 s of the server's clock, and once. The answer is
neither encrypted nor signed: that is the work of TLS under it.

Reference: HMAC of RFC 2104.
"""

import hmac
import re
import struct
from dataclasses import dataclass

from tern_wire.errors import PeerProofRefused
from tern_wire.limits import PEER_PROOF_WINDOW_MS, PEER_PROOFS_MAX

NONCE_SIZE_BYTES = 16
_HEADER = re.compile(r"1 ([a-z0-9][a-z0-9-]{0,30}) ([0-9]{1,15}) ([0-9a-f]{32}) ([0-9a-f]{64})")
_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRequest:
    """The signed facts. *target*: path and query as they are on the wire; *time_ms*: since 1970."""

    method: str
    target: str
    node: str
    group_id: str
    time_ms: int
    nonce: str


def proof_header(key: bytes, request: PeerRequest) -> str:
    """The value of the header. Its nonce (32 hex digits) must never be used again."""
    return f"1 {request.node} {request.time_ms} {request.nonce} {_mac(key, request)}"


class PeerProofs:
    """Verifies proofs of the nodes of one broker group. Owner: the route that uses it."""

    def __init__(self, key: bytes, group_id: str, nodes: frozenset[str]) -> None:
        self._key, self._group_id, self._nodes = key, group_id, nodes
        # Used nonces in the order of their arrival, with the end of the time in which each could
        # come again.
        self._used: dict[str, int] = {}

    def require(self, header: str, method: str, target: str, now_ms: int) -> str:
        """Return the node that sends the request.

        PeerProofRefused unless the proof is of this request, made now, and new.
        """
        match = _HEADER.fullmatch(header)
        if match is None:
            raise PeerProofRefused(reason="There is no proof with the cluster key")
        node, time_ms, nonce = match[1], int(match[2]), match[3]
        request = PeerRequest(
            method=method, target=target, node=node, group_id=self._group_id, time_ms=time_ms, nonce=nonce
        )
        # One answer for a wrong key and an unknown node: a stranger learns nothing.
        if not hmac.compare_digest(match[4], _mac(self._key, request)) or node not in self._nodes:
            raise PeerProofRefused(reason="The proof is not made with this group's cluster key")
        if abs(time_ms - now_ms) > PEER_PROOF_WINDOW_MS:
            raise PeerProofRefused(reason=f"The proof was made {now_ms - time_ms} ms ago by this node's clock")
        self._forget(now_ms)
        if nonce in self._used or len(self._used) >= PEER_PROOFS_MAX:
            raise PeerProofRefused(reason="The proof was used before")
        self._used[nonce] = time_ms + PEER_PROOF_WINDOW_MS
        return node

    def _forget(self, now_ms: int) -> None:
        while self._used and self._used[oldest := next(iter(self._used))] < now_ms:
            del self._used[oldest]


def _mac(key: bytes, request: PeerRequest) -> str:
    fields = (request.method, request.target, request.node, request.group_id, str(request.time_ms), request.nonce)
    message = b"".join(_SIZE.pack(len(field.encode())) + field.encode() for field in ("ternmq peer", *fields))
    return hmac.new(key, message, "sha256").hexdigest()
