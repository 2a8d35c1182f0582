"""The API document: FastAPI's own, completed with the hot routes, bodies, errors and examples. OpenAPI 3.1.

Built at the first request of /openapi.json, from tables that are imported only then: most proxies are never asked, and
start-up time and idle memory are for messages. The same release always gives the same bytes.

Reference: OpenAPI 3.1.0; RFC 9457 (problems).
"""

from collections.abc import Iterable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import FastAPI

from tern_proxy.openapi.examples import EXAMPLE_NAMES, FIELDS, OTHER_FIELDS
from tern_service.problems import problem_reply
from tern_wire import paths
from tern_wire.errors import ERRORS, TernError
from tern_wire.names import NAMESPACE_LENGTH_MAX
from tern_wire.principals.principals import PRINCIPAL_PATTERN
from tern_wire.replies import CORRELATION_PATTERN
from tern_wire.routing.membership import MEMBER_PATTERN

if TYPE_CHECKING:
    from tern_proxy.openapi.operations import Operation

Document = dict[str, Any]
BASE_URL = f"http://127.0.0.1:{paths.PORT_PROXY}"
_TAGS = {
    "messages": "Send, receive, settle, and read by offset.",
    "transactions": "Messages that become visible together with something else, or never.",
    "producer groups": "Who is asked what became of a transaction, and how.",
    "delayed messages": "See what waits for its delivery time, and take it back.",
    "queries": "Find single messages, and where they are.",
    "topics": "Declare topics, see their queues.",
    "groups": "Declare consumer groups, see and move their offsets.",
    "principals": "Who may do what, and with which keys.",
    "dead letters": "Messages that have failed for the last time: browse, redrive, purge.",
    "cluster": "Who is there and who leads.",
    "health": "For supervisors, load balancers and Prometheus.",
}


def install_openapi(app: FastAPI) -> None:
    """Let *app* answer the completed document, built when it is first asked for."""
    of_fastapi = app.openapi
    complete: Document = {}

    def openapi() -> Document:
        if not complete:
            complete.update(build_document(of_fastapi()))
        return complete

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does it


def build_document(known: Document) -> Document:
    """*known*, which FastAPI has made, with everything that it cannot know. *known* stays as it is."""
    from tern_proxy.openapi import (  # noqa: PLC0415 - see above: only those who ask pay
        cluster,
        dead_letters,
        members,
        principals,
        producers,
        queries,
        requests,
        scheduled,
        schemas,
        security,
        topics,
        transactions,
    )
    from tern_proxy.openapi.messages import MESSAGES  # noqa: PLC0415
    from tern_proxy.openapi.operations import ADMIN, SERVER  # noqa: PLC0415

    operations = (
        *MESSAGES,
        *requests.REQUESTS,
        *producers.PRODUCERS,
        *transactions.TRANSACTIONS,
        *queries.QUERIES,
        *scheduled.SCHEDULED,
        *ADMIN,
        *members.MEMBERS,
        *topics.TOPICS,
        *cluster.CLUSTER,
        *dead_letters.DEAD_LETTERS,
        *principals.PRINCIPALS,
    )
    documented: dict[str, Document] = {}
    for operation in operations:
        of_fastapi = known["paths"].get(operation.path, {}).get(operation.method.lower(), {})
        server = (*SERVER, *security.refusals_of(operation.method, operation.path))
        completed = _complete(operation, of_fastapi, server) | security.security_of(operation.method, operation.path)
        documented.setdefault(operation.path, {})[operation.method.lower()] = completed
    # A route that the tables do not have yet stays as FastAPI describes it.
    for path, methods in known["paths"].items():
        documented[path] = methods | documented.get(path, {})
    refusals = (*SERVER, *security.REFUSALS)
    codes = sorted({code for operation in operations for code in (*operation.errors, *refusals)})
    components = known.get("components", {})
    return {
        **known,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "servers": [{"url": "/"}],
        "paths": documented,
        "components": {
            **components,
            "securitySchemes": security.schemes(),
            "schemas": {
                **_still_used(components.get("schemas", {}), known["paths"], documented),
                **schemas.build_schemas(
                    (
                        *cluster.ANSWERS,
                        *dead_letters.ANSWERS,
                        *dead_letters.REQUESTS,
                        *members.ANSWERS,
                        *members.REQUESTS,
                        *producers.ANSWERS,
                        *producers.REQUESTS,
                        *transactions.ANSWERS,
                        *transactions.REQUESTS,
                        *topics.ANSWERS,
                        *topics.REQUESTS,
                        *queries.ANSWERS,
                        *scheduled.ANSWERS,
                        *queries.REQUESTS,
                        *principals.ANSWERS,
                        *principals.REQUESTS,
                    ),
                    {
                        **dead_letters.keywords(),
                        **members.keywords(),
                        **topics.keywords(),
                        **queries.keywords(),
                        **scheduled.keywords(),
                        **producers.keywords(),
                        **transactions.keywords(),
                        **principals.keywords(),
                    },
                ),
            },
            "parameters": _path_parameters(schemas) | {"RequestId": _request_id(), "Namespace": _namespace()},
            "headers": _headers(),
            "examples": {code: _problem_example(ERRORS[code]) for code in codes},
        },
    }


def _still_used(schemas: Document, known: Document, documented: Document) -> Document:
    """FastAPI's schemas, as long as an operation is left that is described by FastAPI alone."""
    left = [path for path in known for method in known[path] if documented[path][method] is known[path][method]]
    return schemas if left else {}


def _complete(operation: "Operation", of_fastapi: Document, server: Iterable[str]) -> Document:
    names = [name for _, name, _, _ in Formatter().parse(operation.path) if name]
    shared = [{"$ref": f"#/components/parameters/{name}"} for name in (*names, *_of_whoever(operation.path))]
    document: Document = {
        "operationId": operation.id,
        "tags": [operation.tag] if operation.tag else of_fastapi["tags"],
        "summary": operation.summary,
        "description": operation.description or of_fastapi["description"],
        "parameters": [*shared, *operation.parameters],
    }
    if operation.body:
        document["requestBody"] = {"required": operation.is_body_needed, "content": dict(operation.body)}
    answers = {str(status): _with_request_id(answer) for status, answer in operation.answers.items()}
    problems: dict[int, list[str]] = {}
    for code in sorted({*operation.errors, *server}):
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
        {"lang": "Shell", "label": f"curl, {body[0]}" if body else "curl", "source": _curl(operation, body)}
        for body in operation.bodies or (None,)
    ]
    return document | dict(operation.extensions)


def _with_request_id(answer: Mapping[str, Any]) -> Document:
    request_id = {"$ref": f"#/components/headers/{paths.HEADER_REQUEST_ID}"}
    return {**answer, "headers": {**answer.get("headers", {}), paths.HEADER_REQUEST_ID: request_id}}


def _curl(operation: "Operation", body: tuple[str, str] | None) -> str:
    method = "" if operation.method == "GET" else f" -X {operation.method}"
    text = f"curl{method} '{BASE_URL}{operation.path.format_map(EXAMPLE_NAMES)}{operation.query}'"
    if body is None:
        return text
    return f"{text} \\\n  -H 'Content-Type: {body[0]}' \\\n  --data-binary '{body[1]}'"


# Problems ---------------------------------------------------------------------------------------------------------
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


def _problem_example(kind: type[TernError]) -> Document:
    wanted = {name for _, name, _, _ in Formatter().parse(kind.fix) if name}
    fields = {**FIELDS, **OTHER_FIELDS.get(kind.code, {})}
    error = kind(**{name: fields[name] for name in sorted(wanted)})
    _, _, body = problem_reply(error, instance="/v1/topics/orders/messages", request_id="5b1f0c9a7e-2a")
    return {"summary": kind.title, "value": orjson.loads(body)}


# Components -------------------------------------------------------------------------------------------------------
def _path_parameters(schemas: Any) -> Document:
    patterns = (
        ("topic", schemas.TOPIC_PATTERN, "The topic."),
        ("group", schemas.GROUP_PATTERN, "The consumer group."),
        ("queue", schemas.QUEUE_PATTERN, "The queue: broker group and number."),
        ("broker_group", "^[a-z0-9][a-z0-9-]{0,30}$", "The broker group."),
        ("member", MEMBER_PATTERN, "The member's id."),
        ("message_id", "^.{1,128}$", "The message's id."),
        ("correlation_id", CORRELATION_PATTERN, "The request's correlation id."),
        ("recall_handle", "^[A-Za-z0-9_-]{1,96}$", "As the send, or the list of scheduled messages, has given it."),
        ("producer_group", schemas.GROUP_PATTERN, "The producer group."),
        ("transaction_id", "^[A-Za-z0-9_-]{1,96}$", "As the begin, a check or the list of transactions has given it."),
        ("principal", f"^{PRINCIPAL_PATTERN}$", "The principal."),
        ("kid", "^[A-Za-z0-9]{16}$", "The key's name."),
        ("task", "^[0-9a-f]{24}$", "The task, as the answer that began it names it."),
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
        "description": "All topics and groups that the request names are in this namespace, and no other object is seen or touched.",
        "schema": {"type": "string", "pattern": f"^[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAMESPACE_LENGTH_MAX - 1}}}$"},
    }


def _of_whoever(path: str) -> tuple[str, ...]:
    """Parameters of every operation, and of every one of the API."""
    return ("RequestId", "Namespace") if path.startswith("/v1/") else ("RequestId",)


def _headers() -> Document:
    offset = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    known: tuple[tuple[str, Document, str], ...] = (
        (paths.HEADER_REQUEST_ID, text, "The request's id: the client's own, or a new one."),
        ("Retry-After", {"type": "integer", "minimum": 1}, "Seconds."),
        ("Location", text, "Where the message can be read."),
        ("Link", text, 'The next page, `rel="next"`.'),
        ("Preference-Applied", text, "`return=minimal`."),
        (paths.HEADER_REPLAYED, {"const": "true"}, "The idempotency key was seen before."),
        ("ETag", text, "Names a closed range; send it in If-None-Match."),
        ("Cache-Control", text, "A closed range never changes."),
        (paths.HEADER_WAIT_APPLIED, text, "The wait that was granted, such as `20000ms`; only when one was asked for."),
        (paths.HEADER_NEXT_OFFSET, offset, "Where to go on."),
        (paths.HEADER_MIN_OFFSET, offset, "The oldest message kept."),
        (paths.HEADER_MAX_OFFSET, offset, "The offset that the next message will get."),
        ("MQ-Message-Id", text, "The message's id."),
        (paths.HEADER_QUEUE, text, "The message's queue."),
        ("MQ-Offset", {"type": "integer", "minimum": -1}, "The message's offset; -1 while it waits for its time."),
        ("MQ-Recall-Handle", text, "DELETE it to recall the message, which waits."),
        (paths.HEADER_DELIVER_AT, offset, "When the message is to be delivered, ms since 1970."),
    )
    return {name: {"description": description, "schema": schema} for name, schema, description in known}
