r"""The layout of a message record: Apache RocketMQ's versions 1 and 2, with IPv4 and IPv6 hosts.

All integers are big-endian.

    0        4         8          12        16       20               28           36          40
    | size 4 | magic 4 | body crc | queue 4 | flag 4 | queue offset 8 | position 8 | sysflag 4 |
    40          48                    56           64                     72           76
    | born ms 8 | born host 8 (v6 20) | store ms 8 | store host 8 (v6 20) | attempts 4 |
    76                    84            88
    | prepared position 8 | body size 4 | body ... | topic size 1 (version 2: 2) | topic ... |
    | properties size 2 | k \x01 v \x02 ... |

The offsets are those of IPv4 hosts; two bits of the sysflag mark longer hosts. Version 2 carries
topics of more than 127 bytes. A commit-log file of RocketMQ ends with a blank: size and magic, 4
bytes each, where the size reaches to the end of the file.

Our own log has version 1 with IPv4 hosts only. Queue offset and position are zero there: they are
assigned when the entry is applied, and readers get a copy with both filled in.

Reference: Apache RocketMQ 5, MessageDecoder, MessageExtEncoder, MessageVersion, MessageSysFlag,
CommitLog.
"""

import struct

import numpy as np

from tern_wire.records.hosts import IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES

Bytes = bytes | bytearray | memoryview

MAGIC = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
VERSIONS = {MAGIC: 1, MAGIC_V2: 2}
MAGICS = {version: magic for magic, version in VERSIONS.items()}

BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
HOSTS_IPV6 = BORN_HOST_IPV6 | STORE_HOST_IPV6
TRANSACTION = 0xC
PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC

HEAD = struct.Struct(">IIIIiqqiq8sq8siqI")
HEAD_SIZE_BYTES = HEAD.size
# All but body, topic and properties.
OVERHEAD_SIZE_BYTES = HEAD_SIZE_BYTES + 1 + 2
SIZE = struct.Struct(">I")
BLANK = struct.Struct(">II")
AT_QUEUE = 12
AT_QUEUE_OFFSET = 20
AT_SYSFLAG = 36
AT_STORE_STAMP = 56
# From here to the end of the head: attempts, prepared position, body size.
AT_BACK = 72
AT_BODY_SIZE = 84
# Java reads the topic's size as a signed byte or short, that of the properties as a signed short.
TOPIC_SIZE_MAX_BYTES = {1: 0x7F, 2: 0x7FFF}
PROPERTIES_SIZE_MAX_BYTES = 0x7FFF

# HEAD for a writer of many records: the fields from queue to prepared position are one piece, which
# a request packs once for each queue.
PIECED_HEAD = struct.Struct(f">III{AT_BODY_SIZE - AT_QUEUE}sI")
# HEAD for a reader: size, queue, queue offset, sysflag, born ms, store ms, body size.
READ_HEAD = struct.Struct(">I4x4xI4xq8xIq8xq8x4x8xI")
# HEAD for each combination of host lengths, by two bits of the sysflag.
HOST_GROWTH_BYTES = IPV6_HOST_SIZE_BYTES - IPV4_HOST_SIZE_BYTES
_BEFORE, _BETWEEN, _AFTER = HEAD.format.split(f"{IPV4_HOST_SIZE_BYTES}s")
HEADS = {
    flags: struct.Struct(
        f"{_BEFORE}{IPV6_HOST_SIZE_BYTES if flags & BORN_HOST_IPV6 else IPV4_HOST_SIZE_BYTES}s"
        f"{_BETWEEN}{IPV6_HOST_SIZE_BYTES if flags & STORE_HOST_IPV6 else IPV4_HOST_SIZE_BYTES}s{_AFTER}"
    )
    for flags in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, HOSTS_IPV6)
}
# HEAD as a numpy row; the hosts are left out.
_FIELDS = {
    "size": (">u4", 0),
    "magic": (">u4", 4),
    "body_crc": (">u4", 8),
    "queue": (">u4", AT_QUEUE),
    "flag": (">i4", 16),
    "queue_offset": (">i8", AT_QUEUE_OFFSET),
    "position": (">i8", 28),
    "sysflag": (">i4", AT_SYSFLAG),
    "born_ms": (">i8", 40),
    "stored_ms": (">i8", AT_STORE_STAMP),
    "attempts": (">i4", AT_BACK),
    "prepared_position": (">i8", 76),
    "body_size": (">u4", AT_BODY_SIZE),
}
_FORMATS, _OFFSETS = zip(*_FIELDS.values(), strict=True)
HEAD_ROWS = np.dtype(
    {"names": list(_FIELDS), "formats": list(_FORMATS), "offsets": list(_OFFSETS), "itemsize": HEAD_SIZE_BYTES}
)
assert PIECED_HEAD.size == READ_HEAD.size == HEAD_SIZE_BYTES
