"""RocketMQ's message ids read back, which no tool of ours does: where a message lies (offset ids), and what its producer called it (UNIQ_KEY).

    offset id, upper-case hex of           | store host 8 or 20 (IPv6) | position 8 |           32 or 56 digits
    UNIQ_KEY of a remoting client, hex of  | address 4 or 16 | pid 2 | loader 4 | ms of the month 4 | counter 2 |
                                                                                                32 or 56 digits
    UNIQ_KEY of a gRPC client, hex of      | 01 | MAC address 6 | pid 2 | seconds 4 | counter 4 |       34 digits

Both forms of 32 (or 56) digits look alike; which one a text is follows from where it stands.
Reference: Apache RocketMQ 5, MessageDecoder, MessageClientIDSetter; rocketmq-clients, MessageIdCodec.
"""

import re
import struct
from dataclasses import dataclass
from ipaddress import ip_address

from tern_wire.errors import RecordMalformed

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+", re.ASCII)
_POSITION_SIZE_BYTES = 8
_PORT_SIZE_BYTES = 4
_REMOTING_TAIL = struct.Struct(">HIIH")
_GRPC = struct.Struct(">B6sHII")
_GRPC_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetId:
    """*host* is a host field (8 or 20 bytes); *position* is the byte in that broker's commit log."""

    host: bytes
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """What a UNIQ_KEY is made of. *origin* is an IP address (4 or 16 bytes) or, from gRPC clients, a MAC address (6).

    *clock* is ms since the month began (remoting) or seconds since 2021-01-01 UTC (gRPC); *loader* tells class loaders of
    one process apart and is 0 for gRPC.
    """

    origin: bytes
    process: int
    loader: int
    clock: int
    counter: int


def host_field(address: str, port: int) -> bytes:
    """`127.0.0.1` or `::1` and a port (0 to 65,535) as the 8 or 20 bytes of a host field; RecordMalformed for other texts."""
    if not 0 <= port <= 65_535:
        raise RecordMalformed(position=0, reason=f"{port} is not a port")
    try:
        packed = ip_address(address).packed
    except ValueError as error:
        raise RecordMalformed(position=0, reason=f"'{address}' is not an IP address") from error
    return packed + port.to_bytes(_PORT_SIZE_BYTES, "big")


def decode_offset_id(text: str) -> OffsetId:
    """The host and position in an offset id; RecordMalformed for any other text."""
    data = _hex_bytes(text, {16, 28})
    position = int.from_bytes(data[-_POSITION_SIZE_BYTES:], "big")
    if position >= 1 << 63:
        raise RecordMalformed(position=0, reason=f"'{text}' holds a negative position")
    return OffsetId(host=data[:-_POSITION_SIZE_BYTES], position=position)


def encode_unique_key(key: UniqueKey) -> str:
    """The UNIQ_KEY that *key* was read from; its form follows from the size of *origin*."""
    try:
        if len(key.origin) == 6:
            data = _GRPC.pack(_GRPC_VERSION, key.origin, key.process, key.clock, key.counter)
        elif len(key.origin) in {4, 16}:
            data = key.origin + _REMOTING_TAIL.pack(key.process, key.loader, key.clock, key.counter)
        else:
            raise RecordMalformed(position=0, reason=f"an origin has 4, 6 or 16 bytes, not {len(key.origin)}")
    except struct.error as error:
        raise RecordMalformed(position=0, reason=f"a part of the id does not fit: {error}") from error
    return data.hex().upper()


def decode_unique_key(text: str) -> UniqueKey:
    """The parts of a UNIQ_KEY of 32, 34 or 56 digits; RecordMalformed for any other text."""
    data = _hex_bytes(text, {16, 17, 28})
    if len(data) == _GRPC.size:
        version, origin, process, clock, counter = _GRPC.unpack(data)
        if version != _GRPC_VERSION:
            raise RecordMalformed(position=0, reason=f"'{text}' is of version {version}; 1 is known")
        return UniqueKey(origin=origin, process=process, loader=0, clock=clock, counter=counter)
    process, loader, clock, counter = _REMOTING_TAIL.unpack(data[-_REMOTING_TAIL.size :])
    origin = data[: -_REMOTING_TAIL.size]
    return UniqueKey(origin=origin, process=process, loader=loader, clock=clock, counter=counter)


def _hex_bytes(text: str, sizes_bytes: set[int]) -> bytes:
    if len(text) // 2 not in sizes_bytes or _HEX.fullmatch(text) is None:
        digits = ", ".join(str(2 * size) for size in sorted(sizes_bytes))
        raise RecordMalformed(position=0, reason=f"'{text[:80]}' is not an id: hex of {digits} digits is")
    return bytes.fromhex(text)
