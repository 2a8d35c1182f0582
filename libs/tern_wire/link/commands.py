"""Commands: the requests of one Raft entry to the replicated state machine.

An entry's body, little-endian:

     0          4           8             16
     | count 4  | rsvd 4    | now_ms 8    | command 1 | command 2 | ...

     one command:  | kind 1 | flags 1 | rsvd 2 | size 4 | payload ... |

Payloads:

     SEND        | rows 4 | receipts 4 | send rows (64 each) | records ...
                 | receipts (`key_rows`, 24 each) |
     LEASE       lease rows (48 each)
     SETTLE      settle rows (40 each)
     LEASE_FIFO  one or more of | group 4 | topic 4 | queue 4 | rows 4 | version 8 |
                                | invisible_ms 8 | token 16 | rows (24 each) |
                 a row: | offset 8 | message group's hash 8 |
                        | run 8 (0: never leased, -1: blocked, only inspected) |
     COPY        | rows 4 | rsvd 4 | move rows (40 each) | records ... |
     BURY        | rows 4 | rsvd 4 | bury rows (48 each) | notes: records, one a row |
     FIRE        timer rows (48 each) that are due
     STAGE       | rows 4 | head size 4 | send rows (64 each) | records ... | head: a map |
     END_TRANSACTIONS   end rows (32 each, `transactions.py`)
     DIGEST      none; each node records the digest of all decisions of apply before this entry
     others      a MessagePack map

`now_ms` is the leader's logical clock, the only time that apply uses. Every command gets exactly
one verdict, in order.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from tern_wire.errors import LinkBodyMalformed

# Format of entries and behaviour of apply; a node that reads an entry of a newer version stops.
STATE_MACHINE_VERSION = 2
# Version with which every group begins. It moves to newer ones when all of its members support them
# (RAISE).
GENESIS_VERSION = 1
ENTRY_HEAD = struct.Struct("<IIq")
COMMAND_HEAD = struct.Struct("<BBHI")
SEND_HEAD = struct.Struct("<II")


class CommandKind(IntEnum):
    """Kind of a command."""

    SEND = 1
    LEASE = 2
    SETTLE = 3
    CREATE_TOPIC = 4
    CREATE_GROUP = 5
    COMMIT_OFFSETS = 6
    COPY = 7
    TRIM = 8
    DIGEST = 9
    ALTER_TOPIC = 11
    DELETE_TOPIC = 12
    ALTER_GROUP = 13
    DELETE_GROUP = 14
    LEASE_FIFO = 15
    SEEK = 21
    MEMBERS = 10
    BURY = 16
    REDRIVE = 17
    PURGE = 18
    FIRE = 19
    CANCEL_TIMER = 20
    DEAD_LETTER = 24
    END_TRANSACTIONS = 22
    CLAIM_CHECKS = 23
    REPORT_CHECKS = 25
    RESOLVE_TRANSACTION = 26
    ALTER_PRODUCER_GROUP = 27
    DELETE_PRODUCER_GROUP = 28
    PUT_PRINCIPAL = 29
    JUDGE = 30
    CHOOSE = 31
    RAISE = 32
    READ_LEASE = 33
    STAGE = 34
    PUBLICATION = 35


# Commands that bring new messages, and all that store messages.
SENDING = frozenset({CommandKind.SEND, CommandKind.STAGE})
STORING = frozenset({CommandKind.SEND, CommandKind.COPY, CommandKind.BURY, CommandKind.STAGE})
# An entry without these is urgent: it may use the last space of a full disk. Due timers wait until
# there is room.
UNHURRIED = STORING | {CommandKind.FIRE}


@dataclass(frozen=True, slots=True)
class Command:
    """One command as stored in an entry; *at* is the offset of its payload in the entry's body."""

    kind: int
    payload: memoryview
    at: int


def entry_parts(
    now_ms: int, commands: list[tuple[CommandKind, list[bytes | bytearray | memoryview]]]
) -> list[bytes | bytearray | memoryview]:
    """Return the parts of an entry's body in order; the log joins them once."""
    parts: list[bytes | bytearray | memoryview] = [ENTRY_HEAD.pack(len(commands), 0, now_ms)]
    for kind, payload in commands:
        parts.append(COMMAND_HEAD.pack(kind, 0, 0, sum(map(len, payload))))
        parts.extend(payload)
    return parts


def read_entry(body: memoryview) -> tuple[int, list[Command]]:
    """Return now_ms and the commands of an entry's body.

    Raise LinkBodyMalformed when the sizes do not add up.
    """
    if len(body) < ENTRY_HEAD.size:
        raise LinkBodyMalformed(reason=f"an entry of {len(body)} bytes")
    count, _, now_ms = ENTRY_HEAD.unpack_from(body)
    at = ENTRY_HEAD.size
    commands: list[Command] = []
    for _ in range(count):
        if at + COMMAND_HEAD.size > len(body):
            raise LinkBodyMalformed(reason="a command's head runs past its entry")
        kind, _, _, size = COMMAND_HEAD.unpack_from(body, at)
        at += COMMAND_HEAD.size
        if at + size > len(body):
            raise LinkBodyMalformed(reason="a command runs past its entry")
        commands.append(Command(kind, body[at : at + size], at))
        at += size
    if at != len(body):
        raise LinkBodyMalformed(reason=f"{len(body) - at} bytes behind the last command")
    return now_ms, commands
