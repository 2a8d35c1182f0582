"""RocketMQ's offset ids: where a message lies. Upper-case hex of 32 digits (IPv6: 56).

     0                         8 or 20      16 or 28
     | store host 8 or 20 (IPv6) | position 8 |

Reference: Apache RocketMQ 5, MessageDecoder.
"""

from tern_wire.errors import RecordMalformed
from tern_wire.records.hosts import IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES

_POSITION_SIZE_BYTES = 8


def encode_offset_id(host: bytes, position: int) -> str:
    """*host* (8 or 20 bytes) and *position* (0 to 2^63 - 1) as 32 or 56 upper-case hex digits."""
    if len(host) not in {IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES}:
        raise RecordMalformed(position=0, reason=f"a host field has 8 or 20 bytes, not {len(host)}")
    if not 0 <= position < 1 << 63:
        raise RecordMalformed(position=0, reason=f"{position} is not a position")
    return (host + position.to_bytes(_POSITION_SIZE_BYTES, "big")).hex().upper()
