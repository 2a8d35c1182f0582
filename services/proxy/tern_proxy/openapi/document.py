"""Builder of the API document (OpenAPI 3.1) from the rows of all routes.

Built at the first request of /openapi.json: most proxies never serve it, and start-up time and idle
memory are for messages. The same release always produces the same bytes. Reference: OpenAPI 3.1.0;
RFC 9457 (problems).
"""

from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from fastapi import FastAPI

from tern_proxy.core.documents.publications import QUERY_PATTERN
from tern_proxy.core.documents.values import BROKER_GROUP_PATTERN, GROUP_PATTERN, QUEUE_PATTERN, TOPIC_PATTERN
from tern_proxy.core.reading.leases import LEASE_PATTERN
from tern_proxy.openapi import security
from tern_proxy.openapi.schemas import build_schemas
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES, problem_example
from tern_proxy.routes.route import Gives, Route
from tern_wire import paths
from tern_wire.errors import ERRORS
from tern_wire.names import NAMESPACE_LENGTH_MAX
from tern_wire.principals.principals import PRINCIPAL_PATTERN
from tern_wire.replies import CORRELATION_PATTERN
from tern_wire.routing.membership import MEMBER_PATTERN

Document = dict[str, Any]
BASE_URL = f"http://127.0.0.1:{paths.PORT_PROXY}"
_NUMBER = "^[0-9]{1,16}$"
_TAGS = {
    "messages": "Send, receive, settle, and read by offset.",
    "transactions": "Messages that become visible by a commit, or never.",
    "publications": "Batches that become visible at once, each exactly once.",
    "producer groups": "Settings for checks of transactions.",
    "delayed messages": "List and recall messages that wait for their delivery time.",
    "queries": "Find single messages, and trace them.",
    "topics": "Declare topics, see their queues.",
    "groups": "Declare consumer groups, see and move their offsets.",
    "principals": "Grants and keys.",
    "dead letters": "Messages after their last failed attempt: browse, redrive, purge.",
    "cluster": "Broker groups, their nodes and leaders.",
    "reference": "Explanations of this API.",
    "health": "For supervisors, load balancers and Prometheus.",
}


def install_openapi(app: FastAPI, routes: Sequence[Route]) -> None:
    """Let *app* serve the document of *routes*, built at the first request."""
    complete: Document = {}

    def openapi() -> Document:
        if not complete:
            info = {"title": app.title, "summary": app.summary, "version": app.version}
            complete.update(build_document(info, routes))
        return complete

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does it


def build_document(info: Document, routes: Iterable[Route]) -> Document:
    """Return the document of those *routes* that have an id."""
    routes = [route for route in routes if route.id]
    paths_of: dict[str, Document] = {}
    for route in routes:
        paths_of.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    codes = sorted({error.code for route in routes for error in route.failures})
    return {
        "openapi": "3.1.0",
        "info": info,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "servers": [{"url": "/"}],
        "paths": paths_of,
        "components": {
            "securitySchemes": security.schemes(),
            "schemas": build_schemas(kind for route in routes for kind in route.kinds),
            "parameters": _path_parameters() | {"RequestId": _request_id(), "Namespace": _namespace()},
            "headers": _headers(),
            "examples": {
                code: {"summary": ERRORS[code].title, "value": problem_example(ERRORS[code])} for code in codes
            },
        },
    }


def _operation(route: Route) -> Document:
    names = [name for _, name, _, _ in Formatter().parse(route.path) if name]
    shared = [{"$ref": f"#/components/parameters/{name}"} for name in (*names, *_of_whoever(route.path))]
    document: Document = {
        "operationId": route.id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "parameters": [*shared, *route.parameters],
    }
    if route.takes is not None:
        document["requestBody"] = {"required": route.takes.is_needed, "content": dict(route.takes.content)}
    answers = {str(status): _answer(given) for status, given in route.gives.items()}
    problems: dict[int, list[str]] = {}
    for code in sorted({error.code for error in route.failures}):
        problems.setdefault(ERRORS[code].status, []).append(code)
    for status, codes in problems.items():
        answer = _problem(status, codes)
        if str(status) in answers:  # readiness: its own document and problems share 503
            own = answers[str(status)]
            text = f"{own['description']} Or:\n\n{answer['description']}"
            answer = {**answer, "description": text, "content": own["content"] | answer["content"]}
        answers[str(status)] = answer
    document["responses"] = {status: answers[status] for status in sorted(answers)}
    document["x-codeSamples"] = [
        {"lang": "Shell", "label": f"curl, {body[0]}" if body else "curl", "source": _curl(route, body)}
        for body in route.bodies or (None,)
    ]
    return document | dict(route.extensions) | security.security_of(route.rule)


def _answer(given: Gives) -> Document:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in given.headers}
    answer: Document = {"description": given.text, "headers": headers}
    if given.content:
        answer["content"] = dict(given.content)
    if given.links:
        answer["links"] = dict(given.links)
    return _with_request_id(answer)


def _with_request_id(answer: Mapping[str, Any]) -> Document:
    request_id = {"$ref": f"#/components/headers/{paths.HEADER_REQUEST_ID}"}
    return {**answer, "headers": {**answer.get("headers", {}), paths.HEADER_REQUEST_ID: request_id}}


def _curl(route: Route, body: tuple[str, str] | None) -> str:
    method = "" if route.method == "GET" else f" -X {route.method}"
    text = f"curl{method} '{BASE_URL}{route.path.format_map(EXAMPLE_NAMES)}{route.query}'"
    if body is None:
        return text
    return f"{text} \\\n  -H 'Content-Type: {body[0]}' \\\n  --data-binary '{body[1]}'"


# Problems -----------------------------------------------------------------------------------------
def _problem(status: int, codes: list[str]) -> Document:
    pause = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}} if status in {408, 429, 503, 504} else {}
    return _with_request_id(
        {
            "description": "\n".join(f"- `{code}`: {ERRORS[code].title}." for code in codes),
            "headers": pause,
            "content": {
                paths.PROBLEM: {
                    "schema": {
                        "allOf": [{"$ref": "#/components/schemas/Problem"}],
                        "properties": {"code": {"enum": codes}, "status": {"const": status}},
                    },
                    "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
                }
            },
        }
    )


# Components ---------------------------------------------------------------------------------------
def _path_parameters() -> Document:
    patterns = (
        ("topic", TOPIC_PATTERN, "The topic."),
        ("group", GROUP_PATTERN, "The consumer group."),
        ("queue", QUEUE_PATTERN, "The queue: broker group and number."),
        ("broker_group", BROKER_GROUP_PATTERN, "The broker group."),
        ("member", MEMBER_PATTERN, "The member's id."),
        ("message_id", "^.{1,128}$", "The message's id."),
        ("correlation_id", CORRELATION_PATTERN, "The request's correlation id."),
        ("recall_handle", "^[A-Za-z0-9_-]{1,96}$", "From a send, or from the list of scheduled messages."),
        ("producer_group", GROUP_PATTERN, "The producer group."),
        ("transaction_id", "^[A-Za-z0-9_-]{1,96}$", "From a begin, a check or the list of transactions."),
        ("principal", f"^{PRINCIPAL_PATTERN}$", "The principal."),
        ("kid", "^[A-Za-z0-9]{16}$", "The key's name."),
        ("problem", "^[a-z0-9-]{1,64}$", "The error's code."),
        ("task", "^[0-9a-f]{24}$", "The task, from the answer that began it."),
        ("lease", LEASE_PATTERN, "The read lease, from the answer to its begin."),
        ("query", QUERY_PATTERN, "Name that the writer of batches has given itself."),
        ("batch", _NUMBER, "Number of the batch: 0 for the first one of the query."),
        ("partition", _NUMBER, "Part of the batch that one task writes."),
        ("attempt", _NUMBER, "Attempt at the partition: another number for each task that writes it."),
        ("chunk", _NUMBER, "Number of the chunk in its stage."),
    )
    return {
        name: {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": {"type": "string", "pattern": pattern},
            "example": EXAMPLE_NAMES[name],
        }
        for name, pattern, text in patterns
    }


def _request_id() -> Document:
    return {
        "name": paths.HEADER_REQUEST_ID,
        "in": "header",
        "description": "Names this request in logs and problems; by default the proxy makes one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    }


def _namespace() -> Document:
    return {
        "name": paths.HEADER_NAMESPACE,
        "in": "header",
        "description": "Namespace of all topics and groups in the request and its answer.",
        "schema": {"type": "string", "pattern": f"^[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAMESPACE_LENGTH_MAX - 1}}}$"},
    }


def _of_whoever(path: str) -> tuple[str, ...]:
    """Return the parameters of every operation; those under /v1/ have more."""
    return ("RequestId", "Namespace") if path.startswith("/v1/") else ("RequestId",)


def _headers() -> Document:
    offset = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    known: tuple[tuple[str, Document, str], ...] = (
        (paths.HEADER_REQUEST_ID, text, "The request's id: the client's own, or a new one."),
        ("Retry-After", {"type": "integer", "minimum": 1}, "Seconds."),
        ("Location", text, "Where the message can be read."),
        ("Content-Security-Policy", text, "No content from other hosts."),
        ("Link", text, 'The next page, `rel="next"`.'),
        ("Preference-Applied", text, "`return=minimal`."),
        (paths.HEADER_REPLAYED, {"const": "true"}, "An earlier send with this idempotency key stored it."),
        ("ETag", text, "Names a closed range; send it in If-None-Match."),
        ("Cache-Control", text, "A closed range never changes."),
        (paths.HEADER_WAIT_APPLIED, text, "The wait that was granted, such as `20000ms`; only when one was requested."),
        (paths.HEADER_NEXT_OFFSET, offset, "The offset to continue at."),
        (paths.HEADER_MIN_OFFSET, offset, "The oldest kept message."),
        (paths.HEADER_MAX_OFFSET, offset, "The offset of the next message."),
        ("MQ-Message-Id", text, "The message's id."),
        (paths.HEADER_QUEUE, text, "The message's queue."),
        (
            "MQ-Offset",
            {"type": "integer", "minimum": -1},
            "The message's offset; -1 while it waits for its delivery time.",
        ),
        ("MQ-Recall-Handle", text, "DELETE it to recall the scheduled message."),
        (paths.HEADER_DELIVER_AT, offset, "The delivery time of the message, ms since 1970."),
    )
    return {name: {"description": description, "schema": schema} for name, schema, description in known}
