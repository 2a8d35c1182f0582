"""Transactions over HTTP: requests as values, and the contents of answers. Pure; all clients build
and read them here.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from tern_client.calls.compressed_bodies import plain_document
from tern_client.calls.documents import get_request, message_headers, packed_message, read_document
from tern_client.transactions.models import (
    BegunTransaction,
    Check,
    CheckedMessage,
    CheckRecord,
    Decision,
    EndedTransaction,
    HalfMessage,
    Span,
    Transaction,
    TransactionMessage,
    TransactionPage,
)
from tern_client.transport.exchange import Request, Response
from tern_wire import paths
from tern_wire.errors import BatchEmpty
from tern_wire.link.codec import encode_json, encode_msgpack
from tern_wire.names import check_group, check_topic
from tern_wire.times import parse_time_ms

_JSON_HEADERS = (("Content-Type", paths.JSON),)


# Requests ---------------------------------------------------------------------------------------
def begin_request(producer_group: str, messages: Sequence[HalfMessage], check_after: Span | None = None) -> Request:
    """Request to store *messages*, invisible. Repeatable when the first message has an idempotency
    key, which stands for all. BatchEmpty without messages.
    """
    if not messages:
        raise BatchEmpty()
    check_group(producer_group)
    after = span_of(check_after)
    is_repeatable = bool(messages[0].idempotency_key)
    if len(messages) == 1:
        (message,) = messages
        extra = [(paths.HEADER_PRODUCER_GROUP, producer_group)]
        if after is not None:
            extra.append((paths.HEADER_CHECK_AFTER, str(after)))
        if (headers := message_headers(message, extra)) is not None:
            path = paths.begin_path(check_topic(message.topic))
            return Request("POST", path, headers, message.body, repeatable=is_repeatable)
    document: dict[str, Any] = {
        "producer_group": producer_group,
        "messages": [{"topic": check_topic(message.topic), **packed_message(message)} for message in messages],
    }
    if after is not None:
        document["check_after"] = after
    headers = (("Content-Type", paths.MSGPACK), ("Accept", paths.JSON))
    return Request("POST", paths.TRANSACTIONS_PATH, headers, encode_msgpack(document), repeatable=is_repeatable)


def end_request(transaction_id: str, decision: Decision) -> Request:
    """Request to commit or roll back. A repeat gets the answer of the first request."""
    return Request("POST", paths.transaction_path(quote(transaction_id, safe=""), str(decision)))


def resolve_request(transaction_id: str, decision: Decision, reason: str) -> Request:
    """Request to end a transaction by hand, an expired one too."""
    path = paths.transaction_path(quote(transaction_id, safe=""), "resolve")
    return Request("POST", path, _JSON_HEADERS, encode_json({"outcome": str(decision), "reason": reason}))


def transaction_request(transaction_id: str) -> Request:
    """Request one transaction."""
    return get_request(paths.transaction_path(quote(transaction_id, safe="")))


def transactions_request(
    producer_group: str = "", state: str = "", older_than: Span | None = None, limit: int = 100, cursor: str = ""
) -> Request:
    """Request a page of transactions that have not ended."""
    asked = {
        "producer_group": check_group(producer_group) if producer_group else "",
        "state": state,
        "older_than": "" if older_than is None else span_of(older_than),
        "limit": limit,
        "cursor": cursor,
    }
    return get_request(
        paths.TRANSACTIONS_PATH, **{name: value for name, value in asked.items() if value not in {"", None}}
    )


def checks_request(producer_group: str, max_messages: int, wait_ms: int) -> Request:
    """Request checks of transactions of *producer_group*; the proxy waits up to *wait_ms* for
    one.
    """
    body = encode_json({"max_messages": max_messages, "wait": wait_ms})
    headers = (*_JSON_HEADERS, ("Accept", paths.MSGPACK))
    path = paths.checks_path(check_group(producer_group))
    return Request("POST", path, headers, body, wait_ms=max(wait_ms, 1))


def producer_group_request(producer_group: str, settings: Mapping[str, Any]) -> Request:
    """Request to declare *producer_group*. A setting that is None is left out, and stays as it
    is.
    """
    document = {name: span_of(value) for name, value in settings.items() if value is not None}
    path = paths.producer_group_path(check_group(producer_group))
    return Request("PUT", path, _JSON_HEADERS, encode_json(document))


def span_of(span: Any) -> Any:
    """Return a timedelta as whole milliseconds; anything else unchanged, for the proxy to read."""
    return span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span


# Answers ----------------------------------------------------------------------------------------
def read_begun(response: Response, producer_group: str) -> BegunTransaction:
    """Return the transaction that has begun, now or at an earlier attempt."""
    document = read_document(response)
    ids = document.get("message_ids") or [document["message_id"]]
    return BegunTransaction(
        transaction_id=document["transaction_id"],
        producer_group=producer_group,
        message_ids=tuple(ids),
        state=document["state"],
        check_at=_time_ms(document.get("check_at")),
        expires_at=_time_ms(document.get("expires_at")),
        replayed=response.status == 200,
    )


def read_ended(response: Response) -> EndedTransaction:
    """Return the end of a transaction."""
    return EndedTransaction(**_known(EndedTransaction, read_document(response)))


def read_transaction(document: Mapping[str, Any]) -> Transaction:
    """Return the transaction in *document*."""
    fields = _known(Transaction, document)
    for name in ("begun_at", "check_at", "ended_at"):
        fields[name] = _time_ms(document.get(name))
    fields["messages"] = tuple(
        TransactionMessage(**_known(TransactionMessage, row)) for row in document.get("messages", ())
    )
    fields["checks"] = tuple(
        CheckRecord(**{**_known(CheckRecord, row), "at": _time_ms(row.get("at"))}) for row in document.get("checks", ())
    )
    return Transaction(**fields)


def read_transactions(response: Response) -> TransactionPage:
    """Return the page in *response*."""
    document = read_document(response)
    found = tuple(read_transaction(row) for row in document["transactions"])
    return TransactionPage(transactions=found, next_cursor=document.get("next_cursor", ""))


def read_checks(response: Response) -> list[Check]:
    """Return the checks in *response*, oldest first."""
    return [read_check(document) for document in read_document(response)["checks"]]


def read_check(document: Mapping[str, Any]) -> Check:
    """Return the check in *document*, from a poll or from the `data` of a callback."""
    return Check(
        transaction_id=document["transaction_id"],
        producer_group=document["producer_group"],
        attempt=document["attempt"],
        begun_at=_time_ms(document.get("begun_at")),
        answer_by=_time_ms(document.get("answer_by")),
        messages=tuple(
            CheckedMessage(
                topic=message["topic"],
                message_id=message["message_id"],
                body=_body(message),
                content_type=message.get("content_type", ""),
                tag=message.get("tag") or "",
                keys=tuple(message.get("keys") or ()),
                properties=message.get("properties") or {},
            )
            for message in document.get("messages", ())
        ),
    )


def _body(message: Mapping[str, Any]) -> bytes | None:
    """Return a plain body: bytes from MessagePack; base64, or none, from callbacks. None for one
    that cannot be decompressed: a checker must not decide by bytes that it cannot read.
    """
    body = message.get("body")
    if isinstance(body, str):
        body = base64.b64decode(body)
    if body is None or not message.get("content_encoding"):
        return body
    found = plain_document({**message, "body": body})
    return None if "content_encoding" in found else found["body"]


def _time_ms(moment: str | int | None) -> int:
    return parse_time_ms(moment) if moment else 0


def _known(model: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of *document* that *model* has fields for, but for null ones. A proxy of a
    later release may send more.
    """
    return {name: document[name] for name in model.__dataclass_fields__ if document.get(name) is not None}
