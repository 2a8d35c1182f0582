"""The proxy's API document as tests read it: made by the real routes, with its operations, references, examples and curls at hand."""

import shlex
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tern_proxy.openapi.document import install_openapi
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import ROUTES, register
from tern_service import add_health, add_metrics
from tern_wire.paths import PROBLEM
from tests.support.proxy.proxy_mesh import KEY, FixedClock, ScriptedNameServer

METHODS = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}
PROXY = Proxy(cluster_key=KEY, name_servers=ScriptedNameServer([]), clock=FixedClock())


def application() -> FastAPI:
    """The proxy's routes that FastAPI knows, with the document completed."""
    app = FastAPI(title="TernMQ", summary="A message queue.", docs_url=None, redoc_url=None)
    add_health(app, ready=PROXY.readiness, info={})
    add_metrics(app, CollectorRegistry(), service="proxy")
    register(app, PROXY)
    install_openapi(app, ROUTES)
    return app


DOCUMENT: dict[str, Any] = application().openapi()
OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method in METHODS
}
OF_PROXY = [name for name, (_, path, _) in OPERATIONS.items() if path.startswith("/v1/")]


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    """*node*, or what it refers to; KeyError when that is not there."""
    found: Any = node
    if "$ref" in node:
        found = DOCUMENT
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
    assert isinstance(found, dict)
    return found


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in *value*."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(child)


def parameters(name: str, place: str) -> dict[str, dict[str, Any]]:
    """An operation's parameters in `query`, `header` or `path`, by name."""
    found = [resolve(each) for each in OPERATIONS[name][2]["parameters"]]
    return {each["name"]: each for each in found if each["in"] == place}


def codes(name: str) -> set[tuple[int, str]]:
    """Status and code of every problem that an operation documents."""
    return {
        (int(status), code)
        for status, answer in OPERATIONS[name][2]["responses"].items()
        for code in answer.get("content", {}).get(PROBLEM, {}).get("examples", {})
    }


def successes(name: str) -> dict[str, dict[str, Any]]:
    """Answers of 200 to 299."""
    return {status: each for status, each in OPERATIONS[name][2]["responses"].items() if status.startswith("2")}


def media_of(content: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(content type, name of the schema or "", example) of every example in *content*."""
    for kind, media in content.items():
        name = media.get("x-itemSchema", media["schema"]).get("$ref", "").rpartition("/")[2]
        given = [media["example"]] if "example" in media else []
        for example in given + [resolve(each)["value"] for each in media.get("examples", {}).values()]:
            yield kind, name, example


def read_curl(source: str) -> tuple[str, str, dict[str, str], bytes]:
    """Method, URL, headers and body of a curl command, as a shell and curl would read it."""
    words = iter(shlex.split(source.replace("\\\n", " ")))
    assert next(words) == "curl"
    given: dict[str, list[str]] = {}
    for word in words:
        given.setdefault(word if word[0] == "-" else "url", []).append(next(words) if word[0] == "-" else word)
    assert given.keys() <= {"-X", "-H", "--data-binary", "url"}
    headers = dict(header.split(": ", 1) for header in given.get("-H", ()))
    (url,), (body,) = given["url"], given.get("--data-binary", [""])
    return given.get("-X", ["GET"])[0], url, headers, body.encode()
