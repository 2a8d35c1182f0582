"""Hosts in RocketMQ's records, and offset ids, which begin with a host.

A host is an address of 4 or 16 bytes and a port of 4, big-endian.

    0                4        8            0                 16       20
    | IPv4 address 4 | port 4 |            | IPv6 address 16 | port 4 |

An offset id is upper-case hex of 32 digits (IPv6: 56).

    0                           8 or 20      16 or 28
    | store host 8 or 20 (IPv6) | position 8 |

Reference: Apache RocketMQ 5, MessageExt (getStoreHostBytes) and MessageDecoder.
"""

from functools import lru_cache

from tern_wire.errors import RecordMalformed

IPV4_HOST_SIZE_BYTES = 8
IPV6_HOST_SIZE_BYTES = 20
NO_HOST = bytes(IPV4_HOST_SIZE_BYTES)
_PORT_SIZE_BYTES = 4
_POSITION_SIZE_BYTES = 8

# As many connections as a proxy has at the most, nearly: a client sends more than one message.
_HOSTS_KEPT_MAX = 8_192


@lru_cache(maxsize=_HOSTS_KEPT_MAX)
def host_bytes(address: str, port: int) -> bytes:
    """Return the 8 bytes of a host field, such as of `127.0.0.1`, 10911; zeros unless IPv4."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        return NO_HOST
    return bytes(int(part) for part in parts) + port.to_bytes(4, "big")


def host_text(host: bytes) -> str:
    """Return a host field in Java's form: `127.0.0.1:10911`, `0:0:0:0:0:0:0:1:10911`.

    IPv6 addresses are never shortened.
    """
    address, port = host[:-_PORT_SIZE_BYTES], int.from_bytes(host[-_PORT_SIZE_BYTES:], "big")
    if len(host) == IPV4_HOST_SIZE_BYTES:
        return f"{'.'.join(str(part) for part in address)}:{port}"
    if len(host) == IPV6_HOST_SIZE_BYTES:
        groups = (address[at] << 8 | address[at + 1] for at in range(0, len(address), 2))
        return f"{':'.join(f'{group:x}' for group in groups)}:{port}"
    raise RecordMalformed(position=0, reason=f"a host field has 8 or 20 bytes, not {len(host)}")


def encode_offset_id(host: bytes, position: int) -> str:
    """Return *host* (8 or 20 bytes) and *position* (0 to 2^63 - 1) as upper-case hex digits."""
    if len(host) not in {IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES}:
        raise RecordMalformed(position=0, reason=f"a host field has 8 or 20 bytes, not {len(host)}")
    if not 0 <= position < 1 << 63:
        raise RecordMalformed(position=0, reason=f"{position} is not a position")
    return (host + position.to_bytes(_POSITION_SIZE_BYTES, "big")).hex().upper()
