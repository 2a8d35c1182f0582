"""Common parts of documents: names, offsets, times, and the problem document of every error.

Texts state their units.
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_wire import limits

OFFSET_MAX = (1 << 63) - 1
# The forms of tern_wire.names and tern_wire.times as ECMA 262 patterns, so `[0-9]` and anchors.
TOPIC_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_-]{0,126}$"
GROUP_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_-]{0,119}$"
QUEUE_PATTERN = "^[a-z0-9][a-z0-9-]{0,30}:(0|[1-9][0-9]{0,3})$"
BROKER_GROUP_PATTERN = "^[a-z0-9][a-z0-9-]{0,30}$"
DURATION_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,3})?(ms|s|m|h|d)?$"

# Answers.
Count = Annotated[int, Meta(ge=0)]
Time = Annotated[int, Meta(description="Milliseconds since 1970 (UTC).")]
Queue = Annotated[str, Meta(pattern=QUEUE_PATTERN, description="Broker group and queue number.")]
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Index in the queue.")]
MessageId = Annotated[str, Meta(min_length=32, max_length=32, description="Made by the proxy; unique.")]
BrokerGroupName = Annotated[str, Meta(pattern=BROKER_GROUP_PATTERN)]
Cursor = Annotated[str, Meta(description="For the next page; empty on the last one.")]
Attributes = Annotated[
    dict[str, str], Meta(max_length=limits.ATTRIBUTES_MAX, description="Stored without interpretation.")
]


class Problem(Struct, kw_only=True):
    """The problem document of every error (RFC 9457), with the fields of the error's context, such
    as `pointer` or `limit`.
    """

    type: str
    title: str
    status: int
    detail: Annotated[str, Meta(description="The cause and the remedy.")]
    code: Annotated[str, Meta(description="Stable; for use by programs.")]
    retryable: Annotated[bool, Meta(description="Whether the same request can succeed later.")]
    instance: Annotated[str, Meta(description="The path of the request.")] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    retry_after_ms: Count | UnsetType = UNSET


if TYPE_CHECKING:
    ProblemMap: TypeAlias = dict[str, Any]
else:
    # The result of an error's `problem()`, encoded as it is; described as a Problem.
    ProblemMap = Problem


# Requests -----------------------------------------------------------------------------------------
# Constraints of these fields are only displayed. msgspec does not check them, because the code that
# uses them has more exact errors.
def shown(text: str = "", **keywords: Any) -> Meta:
    """Return JSON Schema keywords for the API document alone."""
    return Meta(extra_json_schema={**keywords, **({"description": text} if text else {})})


def words(*known: str, text: str = "") -> Meta:
    """Return an enumeration of texts.

    In answers it is not closed, because a broker of another release may have more.
    """
    return shown(text, enum=list(known))


# Keywords that replace those of msgspec's schema of a type (`openapi/schemas.py`).
INSTEAD = "x-instead"


def instead(**keywords: Any) -> Meta:
    """Return keywords that override the type's own schema; None removes a keyword."""
    return Meta(extra_json_schema={INSTEAD: keywords})


DurationText = Annotated[str, shown(pattern=DURATION_PATTERN)]


def span(least_ms: int, most_ms: int) -> Meta:
    """Return the range of a duration as a number."""
    return shown(minimum=least_ms, maximum=most_ms)


def told(text: str, least_ms: int, most_ms: int) -> Meta:
    """Return the description of a duration in this range, with its written forms."""
    return shown(f"{text} {least_ms:,} to {most_ms:,} ms, as `500ms`, `10s`, `5m`, `2h`, or plain milliseconds.")


_HIDDEN, _WAITS = (
    "Time for which a received message is invisible to other consumers.",
    "Longest wait for a first message.",
)
Invisible = Annotated[
    DurationText | Annotated[int, span(limits.INVISIBLE_MIN_MS, limits.INVISIBLE_MAX_MS)],
    told(_HIDDEN, limits.INVISIBLE_MIN_MS, limits.INVISIBLE_MAX_MS),
]
Wait = Annotated[DurationText | Annotated[int, span(0, limits.WAIT_MAX_MS)], told(_WAITS, 0, limits.WAIT_MAX_MS)]
_Attribute = Annotated[str, shown(maxLength=limits.ATTRIBUTE_VALUE_SIZE_MAX_BYTES)]
ChangedAttributes = Annotated[
    dict[str, _Attribute | None],
    shown(
        "Texts are set, null removes.",
        maxProperties=limits.ATTRIBUTES_MAX,
        propertyNames={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
    ),
]


S = TypeVar("S", bound=Struct)


def extended(document: Struct, kind: type[S], **more: Any) -> S:
    """Return a *kind* with the fields of *document*, whose type it extends, and *more*.

    >>> extended(state, TopicDeclared, created=True)
    """
    return kind(**{name: getattr(document, name) for name in document.__struct_fields__}, **more)
