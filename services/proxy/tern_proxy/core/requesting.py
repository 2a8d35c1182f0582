"""Parsing of requests and replies, and the properties of their records.

Fields shared with sends are parsed as in a send. A request is a send with `timeout`,
`correlation_id` and `client`. A reply is a send with `reply_to` and `correlation_id` and without
fields for its queue, tag or time, which belong to the requester. Query parameters override headers,
as in a send.
"""

from dataclasses import dataclass
from urllib.parse import urlencode

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.sending.parameters import (
    SEND_PARAMETERS,
    Headers,
    read_query_once,
    read_send,
    split_own,
    wait_of,
)
from tern_wire.errors import IllegalTimeout, InvalidField, TernError, TopicNotFound, UnknownField
from tern_wire.limits import REPLY_TIMEOUT_DEFAULT_MS, REPLY_TIMEOUT_MAX_MS
from tern_wire.link.queries import AwaitReply
from tern_wire.link.rows import key_hash
from tern_wire.paths import (
    HEADER_CLIENT,
    HEADER_CORRELATION_ID,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_KEY,
    HEADER_NAMESPACE,
    HEADER_PROPERTIES,
    HEADER_PROPERTY_PREFIX,
    HEADER_REPLY_TO,
    HEADER_REQUEST_ID,
    HEADER_TIMEOUT,
    requests_path,
)
from tern_wire.records.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY_TO, REPLY_WAIT_MS
from tern_wire.replies import REPLY, ReplyAddress, check_client, check_correlation_id, read_reply_address
from tern_wire.times import given_duration, parse_duration_ms

# Parameter -> header, for those that a send does not have.
_OF_REQUEST = {"timeout": HEADER_TIMEOUT, "correlation_id": HEADER_CORRELATION_ID, "client": HEADER_CLIENT}
_OF_REPLY = {"reply_to": HEADER_REPLY_TO, "correlation_id": HEADER_CORRELATION_ID}
# Parameters of a send that a reply has.
_REPLY_PARAMETERS = (*_OF_REPLY, "key", "idempotency_key")
_REPLY_HEADERS = (
    *_OF_REPLY.values(),
    HEADER_KEY,
    HEADER_PROPERTIES,
    HEADER_PROPERTY_PREFIX + "<name>",
    HEADER_IDEMPOTENCY_KEY,
    HEADER_NAMESPACE,
    HEADER_REQUEST_ID,
)
_PREFIX = HEADER_PROPERTY_PREFIX.lower().encode()
_REPLY_HEADERS_TAKEN = frozenset(name.lower().encode() for name in _REPLY_HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parsed request: message, timeout and names; "" for names that the proxy chooses."""

    message: PackedMessage
    timeout_ms: int
    correlation_id: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Parsed reply: the message, its address, and the correlation id of the request."""

    message: PackedMessage
    address: ReplyAddress
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Awaited reply: its correlation id, its client, and the earliest time of storage (ms)."""

    correlation_id: str
    client: str
    from_ms: int

    def question(self, topic: str, broker_group: str, wait_ms: int) -> AwaitReply:
        """Return the link request for it to one broker group, in the reply topic *topic*."""
        return AwaitReply(
            topic=topic,
            correlation_id=self.correlation_id,
            reply_to=str(ReplyAddress(broker_group, self.client)),
            from_ms=self.from_ms,
            wait_ms=wait_ms,
        )


def read_request(headers: Headers, query_string: bytes, body: bytes) -> Asked:
    """Parse a request.

    Raise the errors of `read_send`, and IllegalTimeout, IllegalCorrelationId, InvalidField.
    """
    given, rest, query = split_own(headers, query_string, _OF_REQUEST, (*SEND_PARAMETERS, *_OF_REQUEST))
    try:
        message = read_send(rest, query, body)
    except UnknownField as error:
        known = f"{error.fields.get('allowed', '')}, {', '.join(_OF_REQUEST.values())}"
        raise UnknownField(**{**error.fields, "allowed": known}) from error
    timeout, correlation_id, client = (given.get(name) for name in _OF_REQUEST)
    return Asked(
        message=message,
        timeout_ms=_timeout_of(timeout[0]) if timeout else REPLY_TIMEOUT_DEFAULT_MS,
        correlation_id=check_correlation_id(*correlation_id) if correlation_id else "",
        client=check_client(*client) if client else "",
    )


def read_reply(headers: Headers, query_string: bytes, body: bytes) -> Answer:
    """Parse a reply.

    Raise the errors of `read_send`, and IllegalReplyAddress, IllegalCorrelationId, or InvalidField
    for a missing field.
    """
    given, rest, query = split_own(headers, query_string, _OF_REPLY, _REPLY_PARAMETERS)
    for name, _ in rest:
        if name.startswith(b"mq-") and name not in _REPLY_HEADERS_TAKEN and not name.startswith(_PREFIX):
            shown = name.decode("latin-1")[:80]
            raise UnknownField(field=shown, pointer=f"header/{shown}", allowed=", ".join(_REPLY_HEADERS))
    for parameter, header in _OF_REPLY.items():
        if parameter not in given:
            reason = f"A reply needs '{parameter}', as the request has it: a parameter, or the header {header}"
            raise InvalidField(reason=reason, pointer=f"query/{parameter}")
    message = read_send(rest, query, body)
    correlation_id = check_correlation_id(*given["correlation_id"])
    message.tag, message.keys = correlation_id, [correlation_id, *message.keys]
    return Answer(message=message, address=read_reply_address(*given["reply_to"]), correlation_id=correlation_id)


def read_asking(query_string: bytes, correlation_id: str) -> tuple[Sought, int]:
    """Parse `GET .../requests/{correlation_id}`: the awaited reply, and how long to wait (ms)."""
    query = read_query_once(query_string, ("client", "wait"))
    check_correlation_id(correlation_id, "path/correlation_id")
    client = check_client(query["client"], "query/client") if "client" in query else correlation_id
    return Sought(correlation_id=correlation_id, client=client, from_ms=0), wait_of(query.get("wait", 0))


def correlation_id_of(asked: Asked, topic: bytes, made: str) -> str:
    """Return the client's own correlation id, or one derived from the idempotency key, or *made*.

    A repeated request with the same idempotency key so waits for the same reply.
    """
    if asked.correlation_id:
        return asked.correlation_id
    key = asked.message.idempotency_key
    return key_hash(topic, key.encode()).hex() if key else made


def request_properties(correlation_id: str, address: ReplyAddress, timeout_ms: int) -> str:
    r"""Return the properties of a request's record, `k\x01v\x02...`."""
    return f"{CORRELATION_ID}\x01{correlation_id}\x02{REPLY_TO}\x01{address}\x02{REPLY_WAIT_MS}\x01{timeout_ms}\x02"


def reply_properties(answer: Answer) -> str:
    r"""Return the properties of a reply's record, `k\x01v\x02...`."""
    return f"{CORRELATION_ID}\x01{answer.correlation_id}\x02{REPLY_TO}\x01{answer.address}\x02{MESSAGE_TYPE}\x01{REPLY}\x02"


def asking_path(topic: str, correlation_id: str, client: str) -> str:
    """Return the path, with its query, at which the reply can be requested again."""
    fields = {} if client == correlation_id else {"client": client}
    return f"{requests_path(topic, _quoted(correlation_id))}?{urlencode({**fields, 'wait': '20s'})}"


def _quoted(text: str) -> str:
    return urlencode({"": text})[1:]


def _timeout_of(text: str) -> int:
    try:
        timeout_ms = parse_duration_ms(text)
    except ValueError as error:
        raise IllegalTimeout(actual=given_duration(text)) from error
    if not 1 <= timeout_ms <= REPLY_TIMEOUT_MAX_MS:
        raise IllegalTimeout(actual=given_duration(text))
    return timeout_ms


def is_open(error: TernError) -> bool:
    """Return whether a repeat at the same broker group can still find the reply."""
    return error.retryable or isinstance(error, TopicNotFound)
