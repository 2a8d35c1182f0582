"""Errors of requests and their replies. Imported from errors.py, which has the table."""

from tern_wire.tern_error import TernError


class IllegalCorrelationId(TernError):
    code, status, title = "illegal-correlation-id", 400, "The correlation id is not allowed"
    fix = (
        "'{correlation_id}' (at {pointer}) is not a correlation id. Use 1 to 64 letters, digits or '._:@#+=~-', "
        "beginning with a letter or digit."
    )


class IllegalReplyAddress(TernError):
    code, status, title = "illegal-reply-address", 400, "The reply address is not one"
    fix = "'{reply_to}' (at {pointer}) is not a reply address. Copy 'reply_to' of the request as it is."


class NoReply(TernError):
    code, status, title = "no-reply", 404, "No reply is stored"
    fix = (
        "There is no reply to '{correlation_id}' of client '{client}' yet, or retention has dropped it. "
        "Repeat the request, with wait=20s to wait for the reply."
    )


class ReplyTimeout(TernError):
    code, status, retryable, title = "reply-timeout", 504, True, "No reply came in time"
    fix = (
        "The request is stored as {message_id}, and there is no reply to '{correlation_id}' so far. A later reply is kept: "
        "request it with GET {ask_again}. Sending the request again with the same Idempotency-Key waits again, and stores nothing."
    )
