"""The API document against what it describes: routes, parameters, formats, limits and examples are what the proxy takes."""

import hashlib
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from typing import Any

import httpx
import msgspec
import orjson
import pytest

from tern_proxy.core import documents
from tern_proxy.core.documents.values import DURATION_PATTERN, GROUP_PATTERN, QUEUE_PATTERN, TOPIC_PATTERN, Problem
from tern_proxy.core.sending.batches import read_batch
from tern_proxy.core.transactions.begin_requests import read_begin_document
from tern_proxy.routes.messages.examples import EXAMPLE_HANDLE
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.table import ROUTES
from tern_wire import limits
from tern_wire.errors import TernError
from tern_wire.link.codec import encode_msgpack, read_json, read_msgpack
from tern_wire.names import check_group, check_topic, parse_queue
from tern_wire.paths import (
    EVENT_STREAM,
    HEADER_REQUEST_ID,
    JSON,
    JSONL,
    MSGPACK,
    NDJSON,
    PROBLEM,
    READ_LEASES_PATH,
    RECORDS,
    redrive_path,
)
from tern_wire.times import parse_duration_ms
from tern_wire.version import VERSION
from tests.support.event_stream import EventStream
from tests.support.proxy.api_document import (
    DOCUMENT,
    METHODS,
    OF_PROXY,
    OPERATIONS,
    application,
    codes,
    media_of,
    nodes,
    parameters,
    read_curl,
    resolve,
    successes,
)
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
SEND, GROUP, PULL = "/v1/topics/orders/messages", "/v1/topics/orders/groups/billing", "/v1/topics/orders/queues/broker"
MOVED = '{"topic": "orders", "offsets": {"broker-a:3": 0}, "expected": {"broker-a:3": 7}}'


DOCUMENTS: dict[str, Any] = {
    name: kind
    for module in pkgutil.iter_modules(documents.__path__, documents.__name__ + ".")
    for name, kind in vars(importlib.import_module(module.name)).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}


async def ask(mesh: ProxyMesh, name: str, query: str = "", **headers: str) -> httpx.Response:
    """An operation with no body and nothing else that it does not need."""
    method, path, _ = OPERATIONS[name]
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    return await mesh.http.request(method, path.format_map(EXAMPLE_NAMES) + query, headers=fields)


# Complete ---------------------------------------------------------------------------------------------------------
def test_every_row_is_documented() -> None:
    """By an id without the path in it, with problems as problems; the document itself and the files of its page are not in it."""
    documented = {(method, path) for method, path, _ in OPERATIONS.values()}
    assert documented == {(route.method, route.path) for route in ROUTES if route.id}
    assert [route.path for route in ROUTES if not route.id] == ["/openapi.json", "/openapi.json", "/docs/{asset}"]
    for name, (_, _, operation) in OPERATIONS.items():
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", name), name
        assert {"tags", "summary", "description", "responses", "x-codeSamples"} <= operation.keys(), name
        assert (500, "internal") in codes(name), name
    assert "HTTPValidationError" not in DOCUMENT["components"]["schemas"]


def test_the_document_is_whole() -> None:
    """It has the version of the release. References and links lead somewhere, ids are unique, path parameters are those of the path, every answer is described."""
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == VERSION
    assert len(OPERATIONS) == sum(len(methods.keys() & METHODS) for methods in DOCUMENT["paths"].values())
    for node in nodes(DOCUMENT):
        if isinstance(node.get("$ref"), str):
            assert resolve(node)
        for link in (link for link in node.get("links", {}).values() if isinstance(link, dict)):
            known = {key for place in ("path", "query") for key in parameters(link["operationId"], place)}
            assert link["parameters"].keys() <= known
    for kind in DOCUMENT["components"].values():
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in kind)
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for name, (_, path, operation) in OPERATIONS.items():
        assert parameters(name, "path").keys() == set(re.findall(r"{(\w+)}", path)), name
        places = [(each["in"], each["name"]) for each in map(resolve, operation["parameters"])]
        assert len(set(places)) == len(places), name
        assert set(operation["tags"]) <= tags
        assert successes(name), name
        assert all(answer["description"] for answer in operation["responses"].values()), name


def test_the_document_is_always_the_same() -> None:
    """In a new process with another hash seed the bytes are these."""
    code = (
        "import sys, hashlib, orjson; sys.path.insert(0, sys.argv[1])\n"
        "from tests.support.proxy.api_document import DOCUMENT\n"
        "print(hashlib.sha256(orjson.dumps(DOCUMENT)).hexdigest())"
    )
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
    done = subprocess.run(
        [sys.executable, "-c", code, root],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == hashlib.sha256(orjson.dumps(DOCUMENT)).hexdigest(), done.stderr


async def test_the_completed_document_is_what_is_served() -> None:
    """GET /openapi.json of an application with install_openapi."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=application()), base_url="http://proxy") as http:
        answer = await http.get("/openapi.json")
        assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)
        assert answer.json() == DOCUMENT


# What is taken ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", OF_PROXY)
async def test_query_parameters_are_those_that_are_accepted(name: str) -> None:
    """The refusal of an unknown parameter names the known ones: they are the documented ones."""
    async with proxy_mesh() as mesh:
        problem = (await ask(mesh, name, "?no_such_parameter=1")).json()
        assert problem["code"] == "unknown-parameter"
        allowed = set() if problem["allowed"] == "none" else set(problem["allowed"].split(", "))
        assert parameters(name, "query").keys() == allowed


async def test_headers_of_a_send_are_those_that_are_accepted() -> None:
    """The same for MQ-* headers; Prefer is not ours, and a prefix is no header."""
    async with proxy_mesh() as mesh:
        problem = (await ask(mesh, "sendMessage", MQ_No_Such="1")).json()
        assert problem["code"] == "unknown-field"
        prefixes = {f"{prefix}<name>" for prefix in OPERATIONS["sendMessage"][2]["x-header-prefixes"]}
        assert (parameters("sendMessage", "header").keys() - {"Prefer"}) | prefixes == set(
            problem["allowed"].split(", ")
        )
    assert all(HEADER_REQUEST_ID in parameters(name, "header") for name in OPERATIONS)


@pytest.mark.parametrize(
    "name", [name for name in OF_PROXY if any("content" in each for each in successes(name).values())]
)
async def test_formats_of_answers_are_those_that_are_supported(name: str) -> None:
    """The refusal of an Accept header names the supported types: they are the documented ones."""
    async with proxy_mesh() as mesh:
        source = OPERATIONS[name][2]["x-codeSamples"][0]["source"]
        method, url, headers, body = read_curl(source)
        answer = await mesh.http.request(method, url, headers=headers | {"accept": "no/such"}, content=body)
        problem = answer.json()
        assert problem["code"] == "not-acceptable"
        documented = set().union(*(answer.get("content", {}) for answer in successes(name).values()))
        # Any type can come back in the raw form, besides the name by which it is asked for.
        assert documented - {"*/*"} == set(problem["supported"].split(", "))


async def test_formats_of_batches_are_those_that_are_supported() -> None:
    """As the refusal of another content type says."""
    async with proxy_mesh() as mesh:
        problem = (await mesh.post(f"{SEND}/batch", b"x", content_type="text/csv")).json()
        content = OPERATIONS["sendBatch"][2]["requestBody"]["content"]
        assert content.keys() == set(re.split(r", | or ", problem["supported"]))


@pytest.mark.parametrize("name", ["receiveMessages", "pullMessages"])
async def test_bounds_of_query_parameters_are_those_that_are_kept(name: str) -> None:
    """The smallest and the largest number, each word and the longest text are taken; the next and another word are not."""
    async with proxy_mesh() as mesh:
        for parameter, described in parameters(name, "query").items():
            schema = described["schema"]
            if schema == {"type": "string"}:
                continue  # any text may be one
            if "maxLength" in schema:
                # A filter that is long because of its blanks.
                for size, statuses in ((schema["maxLength"], {200, 204}), (schema["maxLength"] + 1, {400})):
                    padding = "+" * (size - len("a IS NULL"))
                    answer = await ask(mesh, name, f"?{parameter}=a+IS+NULL{padding}")
                    assert answer.status_code in statuses, f"{parameter} of {size}"
                continue
            whole: dict[str, Any] = next(
                (each for each in schema.get("anyOf", [schema]) if each.get("type") == "integer"), {}
            )
            words = [word for each in schema.get("anyOf", [schema]) for word in each.get("enum", ())]
            good = [*words, *(whole[key] for key in ("minimum", "maximum") if key in whole)]
            bad = ["no-such-word", *([whole["minimum"] - 1, whole["maximum"] + 1] if whole else [])]
            # A choice of fields is one of records.
            accept = {"accept": RECORDS} if parameter == "fields" else {}
            for value in good:
                answer = await ask(mesh, name, f"?{parameter}={value}", **accept)
                assert answer.status_code in {200, 204}, f"{parameter}={value}: {answer.text}"
            for value in bad:
                answer = await ask(mesh, name, f"?{parameter}={value}")
                assert answer.status_code == 400, f"{parameter}={value}"


def test_limits_of_bodies_are_the_limits() -> None:
    """Where a schema has a number, it is the one in tern_wire.limits."""
    schemas = DOCUMENT["components"]["schemas"]
    kept: dict[str, int] = {
        "JsonMessage body maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES,
        "JsonMessage keys maxItems": limits.KEYS_MAX,
        "JsonMessage tag maxLength": limits.TAG_SIZE_MAX_BYTES,
        "JsonMessage properties maxProperties": limits.PROPERTIES_MAX,
        "JsonMessage idempotency_key maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES,
        "PackedMessage body maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES,
        "JsonBatch messages maxItems": limits.BATCH_MESSAGES_MAX,
        "PackedBatch messages maxItems": limits.BATCH_MESSAGES_MAX,
        "AckRequest receipt_handles maxItems": limits.SETTLE_ENTRIES_MAX,
        "SettleRequest entries maxItems": limits.SETTLE_ENTRIES_MAX,
        "ReceiveRequest settle maxItems": limits.SETTLE_ENTRIES_MAX,
        "ReceiveRequest max_messages maximum": limits.RECEIVE_MESSAGES_MAX,
        "TopicSettings queues maximum": limits.QUEUES_PER_TOPIC_MAX,
    }
    for place, limit in kept.items():
        name, field, keyword = place.split()
        assert schemas[name]["properties"][field][keyword] == limit, place
    assert schemas["Wait"]["anyOf"][1]["maximum"] == limits.WAIT_MAX_MS
    assert schemas["InvisibleTime"]["anyOf"][1]["minimum"] == limits.INVISIBLE_MIN_MS


@pytest.mark.parametrize(
    ("pattern", "check", "texts"),
    [
        (
            TOPIC_PATTERN,
            check_topic,
            ["a" * 127, "a" * 128, "A-_9", "", "-a", "_a", "a b", "a.b", "%a"],
        ),
        (GROUP_PATTERN, check_group, ["a" * 120, "a" * 121, "9", "", "-a", "a/b", "ä"]),
        (
            QUEUE_PATTERN,
            lambda text: parse_queue(text, "t"),
            ["broker-a:3", "b:0", "b:01", "b:9999", "b:10000", "B:1", "b", "a" * 31 + ":1", "a" * 32 + ":1", "-b:1"],
        ),
        (
            DURATION_PATTERN,
            parse_duration_ms,
            ["1500", "1.5s", "2h", "5m", "1d", "20ms", "1.2345s", "", "s", "-1s", "1 s", "1w", "9" * 12, "9" * 13],
        ),
    ],
)
def test_patterns_say_what_the_readers_take(pattern: str, check: Any, texts: list[str]) -> None:
    """Same verdict on every text, at the edges too."""
    for text in texts:
        try:
            check(text)
            is_taken = True
        except (TernError, ValueError):
            is_taken = False
        assert (re.search(pattern, text) is not None) is is_taken, text


# Examples ---------------------------------------------------------------------------------------------------------
def test_examples_of_bodies_are_accepted_by_the_decoders() -> None:
    """In every content type of every operation; text that stands for MessagePack's binary is packed as binary."""
    seen = set()
    for name, (_, _, operation) in OPERATIONS.items():
        for kind, schema, example in media_of(operation.get("requestBody", {}).get("content", {})):
            seen.add((name, kind))
            if kind in {NDJSON, JSONL}:
                assert len(read_batch(example.encode(), kind)) == 2
            elif kind == MSGPACK and schema == "PackedTransaction":
                packed = [{**message, "body": message["body"].encode()} for message in example["messages"]]
                assert read_begin_document(encode_msgpack({**example, "messages": packed}), kind)
            elif kind == MSGPACK and schema == "PackedBatch":
                packed = [{**message, "body": message["body"].encode()} for message in example["messages"]]
                assert read_batch(encode_msgpack({"messages": packed}), kind)
            elif kind == MSGPACK:
                read_msgpack(encode_msgpack(example), DOCUMENTS[schema])
            elif schema:
                read_json(orjson.dumps(example), DOCUMENTS[schema])
    assert len(seen) == 2 + 4 + 4 + 4 * 2 + 2 + 5 * 2 + 3 * 2 + 2 + 6 * 2 + 5 * 2


def strictly(document: bytes, schema: str) -> None:
    """AssertionError unless *document* is what *schema* describes, with no field that it does not know."""
    value = read_json(document, DOCUMENTS[schema])
    assert msgspec.to_builtins(value) == orjson.loads(document), schema


def test_examples_of_answers_are_what_their_schemas_describe() -> None:
    """Field by field; problems may have more fields, which belong to their error."""
    for name, (_, _, operation) in OPERATIONS.items():
        for status, answer in operation["responses"].items():
            for kind, schema, example in media_of(answer.get("content", {})):
                if kind == PROBLEM:
                    problem = read_json(orjson.dumps(example), Problem)
                    assert (problem.status, problem.code) == (int(status), example["code"]), name
                elif kind == NDJSON:
                    for line in example.splitlines():
                        strictly(line.encode(), schema)
                elif kind == EVENT_STREAM:
                    (event,) = EventStream().feed(example.encode())
                    strictly(event.data.encode(), "Message")
                else:
                    strictly(orjson.dumps(example), schema)


async def test_every_curl_does_what_the_document_says() -> None:
    """Word for word, in the document's order, at a proxy with a broker; only receipt handles are real ones."""
    ran = 0
    async with proxy_mesh() as mesh:
        mesh.broker.keep_up()  # the feature level rises
        await mesh.http.put("/v1/producer-groups/shop")
        handles: list[str] = []
        message_id = ""
        for name, (method, _, operation) in OPERATIONS.items():
            for sample in operation["x-codeSamples"]:
                source = sample["source"]
                if EXAMPLE_HANDLE in source:
                    source = source.replace(EXAMPLE_HANDLE, handles.pop())
                source = source.replace(EXAMPLE_NAMES["message_id"], message_id)
                if EXAMPLE_NAMES["recall_handle"] in source:
                    waits = await mesh.http.post(f"{SEND}?delay=1h", content=b"x")
                    source = source.replace(EXAMPLE_NAMES["recall_handle"], waits.json()["recall_handle"])
                if EXAMPLE_NAMES["transaction_id"] in source:
                    begun = await mesh.http.post("/v1/topics/orders/transactions?producer_group=shop", content=b"x")
                    source = source.replace(EXAMPLE_NAMES["transaction_id"], begun.json()["transaction_id"])
                if EXAMPLE_NAMES["task"] in source:
                    task = await mesh.http.post(redrive_path("billing"), json={"to": "origin"})
                    assert task.status_code == 202, task.text
                    source = source.replace(EXAMPLE_NAMES["task"], task.json()["task"])
                if EXAMPLE_NAMES["lease"] in source:
                    lease = await mesh.http.post(READ_LEASES_PATH, json={"topics": [{"topic": "orders"}]})
                    source = source.replace(EXAMPLE_NAMES["lease"], lease.json()["lease"])
                if EXAMPLE_NAMES["kid"] in source:
                    made = await mesh.http.post("/v1/principals/shop/keys")
                    source = source.replace(EXAMPLE_NAMES["kid"], made.json()["kid"])
                asked, url, headers, body = read_curl(source)
                assert asked == method
                answer = await mesh.http.request(method, url, headers=headers, content=body)
                documented = operation["responses"][str(answer.status_code)]
                assert answer.is_success or name == "getReadiness", f"{name}: {answer.text}"
                if answer.status_code != 204:
                    kind = answer.headers["content-type"]
                    media = documented["content"].get(kind) or documented["content"][kind.partition(";")[0]]
                    if "$ref" in media["schema"]:
                        strictly(answer.content, media["schema"]["$ref"].rpartition("/")[2])
                if asked == "DELETE":  # the operations behind it need what is gone
                    await mesh.http.put("/v1/topics/orders")
                    await mesh.http.put("/v1/groups/billing")
                    await mesh.http.put("/v1/producer-groups/shop")
                    await mesh.http.put("/v1/principals/shop")
                if name == "sendMessage":
                    message_id = answer.json()["message_id"]
                if name == "receiveMessages":
                    handles = [message["receipt_handle"] for message in answer.json()["messages"]]
                ran += 1
    assert ran >= len(OPERATIONS)
