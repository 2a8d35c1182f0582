"""Errors of requests that exceed their share of room or time, that match no route, or that come
before or behind their time.

Imported from errors.py, which has the table of all errors. Law: an error names what the caller may
change, and nothing about what others hold.
"""

from tern_wire.tern_error import TernError


class ShareExceeded(TernError):
    code, status, retryable, title = "share-exceeded", 429, True, "The caller's share of this proxy is used up"
    fix = (
        "This principal, or without credentials this address, holds as much of the room for {what} as one may while others need some. Nothing "
        "was done: repeat after Retry-After, with fewer or smaller requests at a time. Requests of ordinary size have room of their own."
    )


class TooManyTails(TernError):
    code, status, retryable, title = "too-many-tails", 429, True, "Too many tails are open"
    fix = (
        "There are {limit} tails of {what} open at this proxy, and no more are allowed. Close one and repeat after Retry-After, or ask another "
        "proxy. A service that works on every message is better a consumer group."
    )


class BodyTooSlow(TernError):
    code, status, retryable, title = "body-too-slow", 408, True, "The request's body came too slowly"
    fix = (
        "For {pause_s} s the body came at less than {rate_bytes_per_s} bytes a second. Send it without pauses, the whole request within {limit_s} s; "
        "over a slow network send smaller requests."
    )


class RequestTimeout(TernError):
    code, status, retryable, title = "request-timeout", 408, True, "The request did not arrive in time"
    fix = "Send the whole request within {limit_s} s."


class TargetTooLong(TernError):
    code, status, title = "target-too-long", 414, "The request's path and query are too long"
    fix = "Path and query have more than {limit} bytes. Send what is long, such as a filter, in the body."


class HeadTooLarge(TernError):
    code, status, title = "head-too-large", 431, "The request's head is too large"
    fix = "The head has more than {limit} {unit}. Send fewer and shorter headers; properties may go into the body of a batch."


class DocumentTooComplex(TernError):
    code, status, title = "document-too-complex", 400, "The document is nested too deeply, or has too many values"
    fix = "The document has more than {limit} {unit} (at {pointer}). Send several smaller ones, or send it as text in 'body'."


class UnsupportedEncoding(TernError):
    code, status, title = "unsupported-encoding", 415, "The content encoding is not supported"
    fix = "Content-Encoding '{encoding}' is not supported. Send the body as it is."


class CallbackRefused(TernError):
    """Breaks callback loops, as CDNs do (RFC 8586).

    A callback has a header that no process of a mesh accepts.
    """

    code, status, title = "callback-refused", 403, "A checker's callback has reached a mesh"
    fix = "The check URL of a producer group names a port of a mesh. Give the URL of the producer's own service."


class ProblemNotFound(TernError):
    code, status, title = "problem-not-found", 404, "There is no such error"
    fix = "No error has the code '{problem}'. GET /problems lists them all."


class RouteNotFound(TernError):
    code, status, title = "route-not-found", 404, "No such path"
    fix = "{method} {path} is not part of the API. See /openapi.json for what is."


class MethodNotAllowed(TernError):
    code, status, title = "method-not-allowed", 405, "The path exists, the method does not"
    fix = "{path} takes {allowed}."


class LinkReplyMalformed(TernError):
    """A broker's reply that refuses the proxy's own request, or that is unreadable.

    The caller did not cause it.
    """

    code, status, title = "link-reply-malformed", 502, "A broker's answer cannot be read"
    fix = "{reason}. Proxy and broker must be of compatible releases; the outcome of the request is unknown."


class UpgradeUnfinished(TernError):
    code, status, retryable, title = "upgrade-unfinished", 503, True, "Not every broker knows this yet"
    fix = (
        "Some members of broker group '{broker_group}' run, or may run, a release without {what}. Finish the upgrade with all members connected "
        "(`ternmq raft status` shows version and level), and repeat; nothing was done."
    )


class ReadLeaseNotFound(TernError):
    code, status, title = "read-lease-not-found", 404, "There is no such read lease"
    fix = (
        "Read lease '{lease}' was ended, or its time is over: its messages may be gone. Plan the rest of the read again, take a new lease, "
        "and renew it in time."
    )


class ReadLeaseBroken(TernError):
    code, status, title = "read-lease-broken", 410, "The read lease does not hold its messages any more"
    fix = "Read lease '{lease}' is broken: {reason}. Plan the rest of the read again; a full disk needs room first (`ternmq status`)."
