"""Transactions on the wire: their numbers, ids, ends, and the texts of their states.

A transaction is one or more half messages (stored and invisible) of one producer group in one
broker group. It ends as a whole. Its number is unique within its broker group and never reused:
`index << 20 | ordinal`, the index of the log entry that began it and its ordinal among the
transactions of that entry. Its id is opaque, MAC-ed text, readable by any proxy with the cluster
key:

     0       1          9                   13            21               21+n
     | ver 1 | number 8 | producer group 4  | principal 8 | broker group n | mac 12 |

END_ROWS request ends, 32 bytes each. END_VERDICTS are their results, 32 bytes each. Little-endian:

     | number 8 | claim 8 | producer group 4 | outcome 1 | by 1 | rsvd 10 |
     | status 4 | outcome 4 | queue 4 | messages 4 | topic 4 | by 4 | offset 8 |

*claim* is the claim of the check that this end answers, 0 for none. A late answer counts, too; the
claim only determines the check to which the answer is attributed. *queue*, *topic* (its id) and
*offset* are those of the first message that a commit made visible. *offset* is -1 if there is none:
the transaction was rolled back, or all of its topics had been deleted.
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
# Origin of an end: the client itself, the client in answer to a check, or an operator.
BY_CLIENT, BY_CHECK, BY_HAND = 1, 2, 3
BY_TEXTS: Mapping[int, str] = {BY_CLIENT: "client", BY_CHECK: "check", BY_HAND: "hand"}
# States as text. Expired: all checks of the producer group's settings went unanswered; an operator
# must resolve the transaction.
OPEN, COMMITTED, ROLLED_BACK, EXPIRED = "open", "committed", "rolled-back", "expired"
STATES = (OPEN, COMMITTED, ROLLED_BACK, EXPIRED)
OUTCOME_STATES: Mapping[int, str] = {COMMIT: COMMITTED, ROLLBACK: ROLLED_BACK}
# Statuses of ends. ENDED_BEFORE: with the same outcome, and the verdict repeats it. EXPIRED_BEFORE:
# only an operator may end it.
ENDED, ENDED_BEFORE, OTHER_OUTCOME, EXPIRED_BEFORE, TRANSACTION_UNKNOWN = range(5)
# One byte per row of REPORT_CHECKS.
CHECK_NOTED, CHECK_NOT_YOURS = 0, 1
# Result of an attempt that was handed out, was handed out again, and was never reported.
LOST = "lost"
# Result of a check that was due and that no client of its producer group requested.
NOT_ASKED = "not-asked"
# Bits of the ordinal within an entry; an entry has room for far fewer transactions.
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
# 21 + 31 (longest broker group) + 12 bytes are 86 characters; a longer text is not an id.
TRANSACTION_ID_SIZE_MAX_CHARS = 96


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Content of a transaction id. *principal* is its owner; 0 without authentication."""

    broker_group: str
    number: int
    producer_group_id: int
    principal: int = 0


class TransactionIds:
    """Maker and reader of the ids of one cluster and namespace ("" for none); ids of others are
    invalid. Immutable.
    """

    __slots__ = ("_key",)

    def __init__(self, cluster_key: bytes, namespace: str = "") -> None:
        purpose = b"transaction id of " + namespace.encode() if namespace else b"transaction id"
        self._key = blake2b(purpose, key=cluster_key, digest_size=32).digest()

    def make(self, transaction: TransactionId) -> str:
        """Return the id of *transaction*: URL-safe, at most TRANSACTION_ID_SIZE_MAX_CHARS."""
        body = _BODY.pack(_VERSION, transaction.number, transaction.producer_group_id, transaction.principal)
        body += transaction.broker_group.encode()
        return urlsafe_b64encode(body + self._mac(body)).rstrip(b"=").decode()

    def read(self, text: str) -> TransactionId:
        """Return the content of the id *text*; raise TransactionIdInvalid unless it was made with
        this key.
        """
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
