"""Transactions on the wire: their numbers, ids, ends, and the texts of their states.

A transaction is one or more half messages, stored and invisible, of one producer group in one broker group; it ends as a whole. Its number
is unique within its broker group and never given again: `index << 20 | ordinal`, of the log entry that began it and which of those begun
by that entry it is. Its id is opaque, MAC-ed text that any proxy with the cluster key can read:

     0       1          9                   13            21               21+n
     | ver 1 | number 8 | producer group 4  | principal 8 | broker group n | mac 12 |

END_ROWS ask for ends, 32 bytes each, and END_VERDICTS say what came of them, 32 bytes each, little-endian:

     | number 8 | claim 8 | producer group 4 | outcome 1 | by 1 | rsvd 10 |
     | status 4 | outcome 4 | queue 4 | messages 4 | topic 4 | by 4 | offset 8 |

*claim*: of the check that this answers, 0 for none. An answer counts however late it is: the claim only says whose note it becomes.
*queue*, *topic* (its id) and *offset* are those of the first message of a committed transaction that became visible; *offset* is -1 if none
did: rolled back, or every topic was deleted before.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

import numpy as np

from tern_wire.errors import TransactionIdInvalid

COMMIT, ROLLBACK = 1, 2
# Who ended it: the client itself, the client when it was asked, a person.
BY_CLIENT, BY_CHECK, BY_HAND = 1, 2, 3
BY_TEXTS: Mapping[int, str] = {BY_CLIENT: "client", BY_CHECK: "check", BY_HAND: "hand"}
# States, as people read them. Expired: asked as often as its producer group says without an answer; it waits to be resolved by hand.
OPEN, COMMITTED, ROLLED_BACK, EXPIRED = "open", "committed", "rolled-back", "expired"
STATES = (OPEN, COMMITTED, ROLLED_BACK, EXPIRED)
OUTCOME_STATES: Mapping[int, str] = {COMMIT: COMMITTED, ROLLBACK: ROLLED_BACK}
# Statuses of ends. ENDED_BEFORE: with the same outcome, and the same facts are told; EXPIRED_BEFORE: only a person may end it now.
ENDED, ENDED_BEFORE, OTHER_OUTCOME, EXPIRED_BEFORE, TRANSACTION_UNKNOWN = range(5)
# One byte per row of REPORT_CHECKS.
CHECK_NOTED, CHECK_NOT_YOURS = 0, 1
# An attempt that was handed out, and again, and of which nobody has told what came of it.
LOST = "lost"
# One that was due, and for which no client of its producer group has asked.
NOT_ASKED = "not-asked"
# Which of an entry's transactions it is: an entry has room for far fewer.
ORDINAL_BITS = 20
NUMBER_MAX = (1 << 62) - 1

END_ROWS = np.dtype(
    [
        ("number", "<i8"),
        ("claim", "<i8"),
        ("producer_group", "<u4"),
        ("outcome", "u1"),
        ("by", "u1"),
        ("reserved", "V10"),
    ]
)
END_ROW = struct.Struct("<qqIBB10x")
END_VERDICTS = np.dtype(
    [
        ("status", "<u4"),
        ("outcome", "<u4"),
        ("queue", "<u4"),
        ("messages", "<u4"),
        ("topic", "<u4"),
        ("by", "<u4"),
        ("offset", "<i8"),
    ]
)
assert END_ROWS.itemsize == END_ROW.size == END_VERDICTS.itemsize == 32

_BODY = struct.Struct(">BqIQ")
_VERSION = 1
_MAC_SIZE_BYTES = 12
# 21 + 31 (longest broker group) + 12 bytes are 86 characters; anything longer was not made here.
TRANSACTION_ID_SIZE_MAX_CHARS = 96


@dataclass(frozen=True, slots=True)
class TransactionId:
    """What a transaction's id says. *principal*: whose it is; 0 until there are principals."""

    broker_group: str
    number: int
    producer_group_id: int
    principal: int = 0


class TransactionIds:
    """Makes and reads the ids of one cluster and namespace ("": of none), which no other reads. Immutable."""

    __slots__ = ("_key",)

    def __init__(self, cluster_key: bytes, namespace: str = "") -> None:
        purpose = b"transaction id of " + namespace.encode() if namespace else b"transaction id"
        self._key = blake2b(purpose, key=cluster_key, digest_size=32).digest()

    def make(self, transaction: TransactionId) -> str:
        """The id of *transaction*: URL-safe text of at most TRANSACTION_ID_SIZE_MAX_CHARS."""
        body = _BODY.pack(_VERSION, transaction.number, transaction.producer_group_id, transaction.principal)
        body += transaction.broker_group.encode()
        return urlsafe_b64encode(body + self._mac(body)).rstrip(b"=").decode()

    def read(self, text: str) -> TransactionId:
        """What *text* names; TransactionIdInvalid unless it was made with this key."""
        if len(text) > TRANSACTION_ID_SIZE_MAX_CHARS:
            raise TransactionIdInvalid()
        try:
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except (Base64Error, UnicodeEncodeError, ValueError) as error:
            raise TransactionIdInvalid() from error
        body, mac = data[:-_MAC_SIZE_BYTES], data[-_MAC_SIZE_BYTES:]
        if len(body) <= _BODY.size or body[0] != _VERSION or not compare_digest(mac, self._mac(body)):
            raise TransactionIdInvalid()
        _, number, producer_group_id, principal = _BODY.unpack_from(body)
        return TransactionId(body[_BODY.size :].decode(), number, producer_group_id, principal)

    def _mac(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=_MAC_SIZE_BYTES).digest()
