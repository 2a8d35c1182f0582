"""Recall handles: opaque, MAC-ed names of scheduled messages, readable by any proxy with the
cluster key.

     0       1              9            17               17+n
     | ver 1 | deliver_ms 8 | timer id 8 | broker group n | mac 12 |

The MAC also covers the topic's name, so a handle is valid only under the path that issued it. A
handle stays valid while the message waits, even when its record moves.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

from tern_wire.errors import RecallHandleInvalid

_BODY = struct.Struct(">Bqq")
_VERSION = 1
_MAC_SIZE_BYTES = 12
# 17 + 31 (longest broker group) + 12 bytes are 80 characters; a longer text is not a handle.
RECALL_HANDLE_SIZE_MAX_CHARS = 96


@dataclass(frozen=True, slots=True)
class Recall:
    """Content of a recall handle: the timer, its broker group, and its delivery time (ms since
    1970).
    """

    broker_group: str
    deliver_ms: int
    timer_id: int


class RecallMaker:
    """Maker and reader of the recall handles of one topic. Immutable."""

    __slots__ = ("_key", "_topic")

    def __init__(self, cluster_key: bytes, topic: str) -> None:
        self._key = blake2b(b"recall handle", key=cluster_key, digest_size=32).digest()
        self._topic = topic.encode() + b"\x00"

    def make(self, recall: Recall) -> str:
        """Return the handle of *recall*: URL-safe text of at most RECALL_HANDLE_SIZE_MAX_CHARS."""
        body = _BODY.pack(_VERSION, recall.deliver_ms, recall.timer_id) + recall.broker_group.encode()
        return urlsafe_b64encode(body + self._mac(body)).rstrip(b"=").decode()

    def read(self, handle: str) -> Recall:
        """Return the content of *handle*.

        Raise RecallHandleInvalid unless the handle was made with this key for this topic.
        """
        if len(handle) > RECALL_HANDLE_SIZE_MAX_CHARS:
            raise RecallHandleInvalid()
        try:
            data = urlsafe_b64decode(handle.encode("ascii") + b"=" * (-len(handle) % 4))
        except (Base64Error, UnicodeEncodeError, ValueError) as error:
            raise RecallHandleInvalid() from error
        body, mac = data[:-_MAC_SIZE_BYTES], data[-_MAC_SIZE_BYTES:]
        if len(body) <= _BODY.size or body[0] != _VERSION or not compare_digest(mac, self._mac(body)):
            raise RecallHandleInvalid()
        _, deliver_ms, timer_id = _BODY.unpack_from(body)
        return Recall(body[_BODY.size :].decode(), deliver_ms, timer_id)

    def _mac(self, body: bytes) -> bytes:
        return blake2b(self._topic + body, key=self._key, digest_size=_MAC_SIZE_BYTES).digest()
