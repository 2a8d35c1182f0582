r"""The properties of a record: their names, and their text `k \x01 v \x02 k \x01 v ...` in UTF-8.

Of equal names the last one counts, and bytes that are not UTF-8 are replaced.
"""

from collections.abc import Iterable

from tern_wire.records.layout import Bytes

KEYS = "KEYS"
TAGS = "TAGS"
MESSAGE_ID = "UNIQ_KEY"
CONTENT_TYPE = "MQ_CONTENT_TYPE"
MESSAGE_GROUP = "__SHARDINGKEY"
# Delivery time (ms since 1970), and the delay level from which it follows.
DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_LEVEL = "DELAY"
# Of a request: the id and the address of its reply, and how long (ms) its sender waits. See
# replies.py.
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO = "REPLY_TO_CLIENT"
REPLY_WAIT_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
# Of a message of a transaction: "true"; its producer group; and the minimum time in seconds before
# its first check.
TRANSACTIONAL = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_AFTER_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# Names with a meaning in RocketMQ or TernMQ; users may not set them as properties.
RESERVED_PROPERTIES = frozenset(
    {
        *(KEYS, TAGS, MESSAGE_ID, CONTENT_TYPE, DELAY_LEVEL, "WAIT", "REAL_TOPIC", "REAL_QID", TRANSACTIONAL),
        *(
            PRODUCER_GROUP,
            CHECK_AFTER_S,
            "MIN_OFFSET",
            "MAX_OFFSET",
            "BUYER_ID",
            "ORIGIN_MESSAGE_ID",
            "TRANSFER_FLAG",
            "CORRECTION_FLAG",
        ),
        *("RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "CLUSTER"),
        *(DELIVER_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", MESSAGE_GROUP, "INSTANCE_ID", CORRELATION_ID),
        *(REPLY_TO, REPLY_WAIT_MS, MESSAGE_TYPE, "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("__CRC32#", "DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"),
    }
)
# Limits of the search for single names: number of names, and bytes of properties. Beyond either,
# decoding all properties is faster, or at least takes a time that no client can extend by its
# choice of names.
_SEARCHED_NAMES_MAX = 6
_SEARCHED_SIZE_MAX_BYTES = 2_048
# Maximum time to read the properties of one message, at the maximum number of properties.
READ_MAX_US = 30.0


def system_properties(message_id: str, tag: str, keys: Iterable[str], content_type: str) -> list[tuple[str, str]]:
    """Return the properties that TernMQ itself writes, in RocketMQ's names, without empty ones."""
    joined = " ".join(keys)
    pairs = [(MESSAGE_ID, message_id)]
    if joined:
        pairs.append((KEYS, joined))
    if tag:
        pairs.append((TAGS, tag))
    if content_type:
        pairs.append((CONTENT_TYPE, content_type))
    return pairs


def encode_properties(properties: Iterable[tuple[str, str]]) -> bytes:
    r"""Return `k\x01v\x02...` in UTF-8.

    The caller has refused control characters in names and values.
    """
    return "".join([f"{name}\x01{value}\x02" for name, value in properties]).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the properties of a record; pairs without a separator are dropped, as in RocketMQ."""
    pairs = (item.split("\x01", 1) for item in data.decode("utf-8", "replace").split("\x02") if item)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def read_properties(data: bytes) -> dict[str, str]:
    """Return the properties as RocketMQ reads them; of equal names the last one counts.

    Pairs without a separator, a name or a value are dropped.
    """
    pairs = (item.partition("\x01") for item in data.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


class PropertyReader:
    """Reads the properties *names*, in that order, from the property bytes of many records."""

    __slots__ = ("_marks", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._marks = [(mark, len(mark)) for mark in (b"\x02%b\x01" % name.encode() for name in names)]

    def values(self, properties: Bytes) -> list[str | None]:
        """Return the value of each of `names` in *properties*, None where it is missing."""
        if len(self._marks) > _SEARCHED_NAMES_MAX or len(properties) > _SEARCHED_SIZE_MAX_BYTES:
            decoded = decode_properties(bytes(properties))
            return [decoded.get(name) for name in self.names]
        # Every pair stands between two separators: so a name matches with its whole length, and its
        # value has an end.
        framed = b"".join((b"\x02", properties, b"\x02"))
        found: list[str | None] = []
        for mark, size in self._marks:
            at = framed.rfind(mark)
            if at < 0:
                found.append(None)
            else:
                found.append(framed[at + size : framed.index(b"\x02", at + size)].decode("utf-8", "replace"))
        return found
