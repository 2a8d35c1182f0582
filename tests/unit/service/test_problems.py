"""Problems: each kind of error as its HTTP answer, over a real FastAPI application."""

import json
import logging
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query, Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ConfigDict

from tern_service import add_health, add_metrics, install_problems, problem_reply, read_body
from tern_service.process_security import UNPROTECTED
from tern_wire.errors import ERRORS, Overloaded, TernError, TopicNotFound
from tern_wire.routing.route import Registration


class Item(BaseModel):
    """A strict body."""

    model_config = ConfigDict(extra="forbid")
    count: int


def sample_app() -> FastAPI:
    """An application that fails in every way."""
    app = FastAPI()
    install_problems(app, body_size_max_bytes=1_000)

    @app.get("/topic")
    async def topic() -> None:
        raise TopicNotFound(topic="orders")

    @app.get("/busy")
    async def busy() -> None:
        raise Overloaded(what="requests that wait", retry_after_ms=1_200)

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError("a secret of the house")

    @app.get("/limit")
    async def limit(n: Annotated[int, Query(ge=1)]) -> int:
        return n

    @app.post("/items")
    async def items(item: Item) -> int:
        return item.count

    @app.post("/registrations")
    async def registrations(request: Request) -> str:
        return (await read_body(request, Registration, size_max_bytes=500)).node

    return app


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


async def ask(method: str, path: str, **keywords: object) -> httpx.Response:
    """One request to a fresh application; errors must be answers, never exceptions."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(sample_app()), base_url="http://mesh") as client:
        return await client.request(method, path, **keywords)  # type: ignore[arg-type]


REGISTRATION = {
    "cluster": "dev",
    "broker_group": "broker-a",
    "node": "n1",
    "link": "127.0.0.1:1",
    "http": "127.0.0.1:2",
    "is_leader": True,
    "term": 1,
}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "pointer"),
    [
        ("GET", "/topic", None, 404, "topic-not-found", None),
        ("GET", "/broken", None, 500, "internal", None),
        ("GET", "/nowhere", None, 404, "route-not-found", None),
        ("GET", "/a%00b%0A%ff", None, 404, "route-not-found", None),
        ("DELETE", "/topic", None, 405, "method-not-allowed", None),
        ("GET", "/limit?n=0", None, 400, "invalid-field", "/query/n"),
        ("GET", "/limit", None, 400, "invalid-field", "/query/n"),
        ("POST", "/items", b'{"count": "x"}', 400, "invalid-field", "/count"),
        ("POST", "/items", b'{"count": 1, "a/b": 2}', 400, "unknown-field", "/a~1b"),
        ("POST", "/items", b"{", 400, "malformed-body", "/"),
        ("POST", "/items", b"\xff\xfe\x00", 400, None, None),
        ("POST", "/items", b'{"count": 1, "x": "%s"}' % (b"x" * 2_000), 413, "message-too-large", None),
        ("POST", "/registrations", b"{", 400, "malformed-body", "/"),
        ("POST", "/registrations", json.dumps(REGISTRATION | {"n0de": 1}).encode(), 400, "unknown-field", "/n0de"),
        ("POST", "/registrations", json.dumps(REGISTRATION | {"term": "x"}).encode(), 400, "invalid-field", "/term"),
        (
            "POST",
            "/registrations",
            json.dumps(REGISTRATION | {"topics": {"t": {"topic_id": 1, "queues": 2, "x": 3}}}).encode(),
            400,
            "unknown-field",
            "/topics/t/x",
        ),
        ("POST", "/registrations", b" " * 501, 413, "message-too-large", None),
    ],
)
async def test_every_error_is_a_problem_with_a_code_and_a_request_id(
    method: str, path: str, body: bytes | None, status: int, code: str | None, pointer: str | None
) -> None:
    """Status, media type, code, pointer and id."""
    headers = {"content-type": "application/json"} if body is not None else {}
    answer = await ask(method, path, content=body, headers=headers)
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert code in {None, problem["code"]}
    assert problem.get("pointer") == pointer or code is None
    assert problem["request_id"] == answer.headers["mq-request-id"]


async def test_an_unexpected_error_is_logged_with_its_id_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, the client the id."""
    with caplog.at_level(logging.ERROR):
        answer = await ask("GET", "/broken")
    assert "secret" not in answer.text
    [record] = caplog.records
    assert vars(record)["request_id"] == answer.headers["mq-request-id"]
    assert "secret" in str(record.exc_info and record.exc_info[1])


async def test_a_refusal_for_now_says_when_to_come_back() -> None:
    """Whole seconds in the header, rounded up; milliseconds in the document."""
    answer = await ask("GET", "/busy")
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["retry_after_ms"] == 1_200
    assert problem_reply(Overloaded())[1].count((b"retry-after", b"1")) == 1


def test_those_who_were_refused_together_do_not_come_back_together() -> None:
    """Requests get pauses of their own, all of half a second to three quarters."""
    refusals = [problem_reply(Overloaded(what="connections"), request_id=f"a-{number}") for number in range(50)]
    pauses = {json.loads(body)["retry_after_ms"] for _, _, body in refusals}
    assert len(pauses) > 30
    assert all(500 <= pause < 750 for pause in pauses)
    assert all((b"retry-after", b"1") in headers for _, headers, _ in refusals)


async def test_a_wrong_method_names_the_right_one() -> None:
    """Reference: RFC 9110 15.5.6."""
    assert (await ask("DELETE", "/topic")).headers["allow"] == "GET"


@pytest.mark.parametrize(("given", "kept"), [("trace-1.a_B", True), ("x" * 65, False), ("a b", False), ("", False)])
async def test_a_sane_request_id_of_the_client_is_kept(given: str, kept: bool) -> None:
    """Anything else is replaced, as it goes into logs and headers."""
    answer = await ask("GET", "/limit?n=1", headers={"MQ-Request-Id": given})
    assert (answer.headers["mq-request-id"] == given) is kept
    assert answer.headers["mq-request-id"]


async def test_health_and_metrics_answer() -> None:
    """Alive always, ready when it says so, memory and CPU counted."""
    app = sample_app()
    state = {"ready": False}
    add_health(app, ready=lambda: (state["ready"], {"leader": "none"}), info=UNPROTECTED.info(node="n1"))
    add_metrics(app, CollectorRegistry(), service="x")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://mesh") as client:
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        verbose = (await client.get("/healthz?verbose")).json()
        assert verbose["node"] == "n1"
        assert "credentials are optional" in verbose["notice"]
        waiting = await client.get("/readyz")
        assert (waiting.status_code, waiting.json()) == (503, {"ready": False, "leader": "none"})
        state["ready"] = True
        assert (await client.get("/readyz")).status_code == 200
        counted = (await client.get("/metrics")).text
    assert "ternmq_x_process_resident_memory_bytes" in counted
    assert "ternmq_x_process_cpu_seconds_total" in counted


@pytest.mark.parametrize("kind", [ERRORS[code] for code in sorted(ERRORS)], ids=sorted(ERRORS))
def test_a_pause_is_told_where_a_repeat_can_help_and_nowhere_else(kind: type[TernError]) -> None:
    """The error's class decides once: `retryable` and `retry_after_ms` never contradict each other."""
    status, headers, body = problem_reply(kind(), request_id="an-id")
    problem = json.loads(body)
    assert (status, problem["retryable"]) == (kind.status, kind.retryable)
    has_pause = kind.retryable and kind.status in {408, 429, 503, 504}
    assert ("retry_after_ms" in problem, any(name == b"retry-after" for name, _ in headers)) == (has_pause, has_pause)
