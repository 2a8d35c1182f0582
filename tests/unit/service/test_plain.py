"""The application without a framework: routes in a table, problems for the rest, and a start and a stop."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter

from tern_service import PlainApp, add_health, health_routes, metrics_routes
from tern_service.plain_app import Answer, json_answer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def broken(_: bytes) -> Answer:
    """A route with a bug."""
    raise ValueError("a secret of the house")


async def nothing() -> None:
    """Nothing to start or to stop."""


@asynccontextmanager
async def asking(app: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client of *app*."""
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://plain") as client:
        yield client


async def test_routes_problems_and_ids() -> None:
    """What the table has is answered, all else is a problem; every answer has the request's id; a bug's text stays in the log."""
    app = PlainApp(
        {"/x": lambda query: json_answer(200, {"q": query.decode()}), "/bug": broken}, start=nothing, stop=nothing
    )
    async with asking(app) as client:
        found = await client.get("/x?a=b", headers={"MQ-Request-Id": "mine-1"})
        assert (found.status_code, found.json(), found.headers["mq-request-id"]) == (200, {"q": "a=b"}, "mine-1")
        assert found.headers["cache-control"] == "no-store"
        assert (await client.head("/x")).content == b""
        missing = await client.get("/y")
        assert (missing.status_code, missing.json()["code"]) == (404, "route-not-found")
        posted = await client.post("/x", content=b"body")
        assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
        bug = await client.get("/bug")
        assert (bug.status_code, "secret" in bug.text) == (500, False)


async def test_a_bug_is_logged_once_with_the_id(caplog: pytest.LogCaptureFixture) -> None:
    """So that what a person sees can be found."""
    async with asking(PlainApp({"/bug": broken}, start=nothing, stop=nothing)) as client:
        with caplog.at_level(logging.ERROR):
            await client.get("/bug", headers={"MQ-Request-Id": "mine-2"})
    (record,) = caplog.records
    assert record.__dict__["request_id"] == "mine-2"


@pytest.mark.parametrize("path", ["/healthz", "/healthz?verbose", "/readyz", "/healthz?x=1&verbose=yes"])
@pytest.mark.parametrize("is_ready", [True, False])
async def test_health_is_the_same_with_and_without_a_framework(path: str, is_ready: bool) -> None:
    """Supervisors and people need not know which one a service has."""
    info = {"service": "x"}

    def ready() -> tuple[bool, dict[str, object]]:
        return is_ready, {"leaders": {}}

    framed = FastAPI()
    add_health(framed, ready=ready, info=info)
    plain = PlainApp(health_routes(ready=ready, info=info), start=nothing, stop=nothing)
    async with asking(framed) as one, asking(plain) as two:
        expected, found = await one.get(path), await two.get(path)
    assert (found.status_code, found.content) == (expected.status_code, expected.content)
    for name in ("content-type", "cache-control", "retry-after"):
        assert found.headers.get(name) == expected.headers.get(name)


async def test_metrics_have_the_process_in_them() -> None:
    """Under the service's name."""
    registry = CollectorRegistry()
    Counter("ternmq_x_things", "Things.", registry=registry).inc(3)
    async with asking(PlainApp(metrics_routes(registry, service="x"), start=nothing, stop=nothing)) as client:
        text = (await client.get("/metrics")).text
    assert "ternmq_x_things_total 3.0" in text
    assert "ternmq_x_process_resident_memory_bytes" in text


async def test_it_starts_and_stops_with_the_server() -> None:
    """Start before the first request, stop after the last."""
    said: list[str] = []

    async def start() -> None:
        said.append("started")

    async def stop() -> None:
        said.append("stopped")

    inbox = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> dict[str, str]:
        said.append(inbox[0]["type"])
        return inbox.pop(0)

    async def send(message: dict[str, str]) -> None:
        said.append(message["type"])

    await PlainApp({}, start=start, stop=stop)({"type": "lifespan"}, receive, send)  # type: ignore[arg-type]
    assert said == [
        *("lifespan.startup", "started", "lifespan.startup.complete"),
        *("lifespan.shutdown", "stopped", "lifespan.shutdown.complete"),
    ]
