"""Hosts inside RocketMQ's records and ids: an address of 4 or 16 bytes and a port of 4, big-endian.

     0                4        8            0                16        20
     | IPv4 address 4 | port 4 |            | IPv6 address 16 | port 4 |

Reference: Apache RocketMQ 5, MessageExt (getStoreHostBytes) and MessageDecoder.
"""

from tern_wire.errors import RecordMalformed

IPV4_HOST_SIZE_BYTES = 8
IPV6_HOST_SIZE_BYTES = 20
_PORT_SIZE_BYTES = 4


def host_text(host: bytes) -> str:
    """A host field as Java prints it: `127.0.0.1:10911`, `0:0:0:0:0:0:0:1:10911` (IPv6 never shortened)."""
    address, port = host[:-_PORT_SIZE_BYTES], int.from_bytes(host[-_PORT_SIZE_BYTES:], "big")
    if len(host) == IPV4_HOST_SIZE_BYTES:
        return f"{'.'.join(str(part) for part in address)}:{port}"
    if len(host) == IPV6_HOST_SIZE_BYTES:
        groups = (address[at] << 8 | address[at + 1] for at in range(0, len(address), 2))
        return f"{':'.join(f'{group:x}' for group in groups)}:{port}"
    raise RecordMalformed(position=0, reason=f"a host field has 8 or 20 bytes, not {len(host)}")
