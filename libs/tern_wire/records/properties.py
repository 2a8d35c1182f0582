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
# When it is to be delivered (ms since 1970), and the delay level that said so.
DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_LEVEL = "DELAY"
# Of a request: what its reply is to carry, where that is to go, and for how long (ms) somebody waits. See replies.py.
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO = "REPLY_TO_CLIENT"
REPLY_WAIT_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
# Of a message that a transaction has stored: "true"; its producer group; and after how many seconds, at least, it was first to be asked about.
TRANSACTIONAL = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_AFTER_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# Names that RocketMQ or TernMQ give a meaning; users may not set them as properties.
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
# Names that are searched one by one, in properties of at most so many bytes. Beyond either, decoding all properties is
# faster, or at least takes a time that nobody can stretch by choosing names.
_SEARCHED_NAMES_MAX = 6
_SEARCHED_SIZE_MAX_BYTES = 2_048
# What reading takes at most, for as many properties as a message can have.
READ_MAX_US = 30.0


def system_properties(message_id: str, tag: str, keys: Iterable[str], content_type: str) -> list[tuple[str, str]]:
    """The properties that TernMQ itself writes, in RocketMQ's names; empty ones are left out."""
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
    r"""`k\x01v\x02...` as UTF-8. The caller has refused control characters in names and values."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties]).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties of a record; pairs without a separator are dropped, as RocketMQ does."""
    pairs = (item.split("\x01", 1) for item in data.decode("utf-8", "replace").split("\x02") if item)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def read_properties(data: bytes) -> dict[str, str]:
    """Properties as RocketMQ reads them: pairs without a separator, a name or a value do not count; of equal names the last."""
    pairs = (item.partition("\x01") for item in data.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


class PropertyReader:
    """Reads the properties *names*, in that order, from the properties' bytes of one record after the other."""

    __slots__ = ("_marks", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._marks = [(mark, len(mark)) for mark in (b"\x02%b\x01" % name.encode() for name in names)]

    def values(self, properties: Bytes) -> list[str | None]:
        """The value of each of `names` in *properties*, None where it is missing."""
        if len(self._marks) > _SEARCHED_NAMES_MAX or len(properties) > _SEARCHED_SIZE_MAX_BYTES:
            decoded = decode_properties(bytes(properties))
            return [decoded.get(name) for name in self.names]
        # Every pair between two separators: then a name is found with its whole length, and its value ends.
        framed = b"".join((b"\x02", properties, b"\x02"))
        found: list[str | None] = []
        for mark, size in self._marks:
            at = framed.rfind(mark)
            if at < 0:
                found.append(None)
            else:
                found.append(framed[at + size : framed.index(b"\x02", at + size)].decode("utf-8", "replace"))
        return found
