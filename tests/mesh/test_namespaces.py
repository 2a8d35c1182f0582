"""Namespaces through real processes: the same names twice, and no route by which one namespace sees or touches another one's objects.

One table has every route of the API (its own document says which there are). Each row is asked by the owner, to whom its names must look as it
wrote them; by a client of another namespace and by one of none, who must find nothing; and with the owner's names forged into paths.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tern_client import BlockingAdmin, BlockingConsumer, BlockingProducer
from tern_wire.errors import TopicNotFound
from tern_wire.paths import HEADER_NAMESPACE, MSGPACK, NDJSON, OCTETS
from tests.support.mesh.mesh import Mesh, eventually

OWNER, OTHER, NONE = "bank", "shop", ""
# What nobody but the owner may ever be shown.
SECRETS = ("bank", "hush")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One route. *path* is filled with the owner's names and ids; `creates`: whoever asks gets an object of its own, so it must show no secret."""

    method: str
    path: str
    query: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    creates: bool = False


def row(method: str, path: str, query: str = "", *, creates: bool = False, **options: Any) -> Row:
    """A Row."""
    return Row(method=method, path=path, query=query, options=options, creates=creates)


TOPIC, GROUP, PRODUCER = "/v1/topics/{topic}", "/v1/groups/{group}", "/v1/producer-groups/{producer_group}"
TRANSACTION, LEASE = "/v1/transactions/{transaction_id}", "/v1/read-leases/{lease}"
STAGED, PUBLICATION = "/staged/{query}/{batch}/{partition}/{attempt}/{chunk}", "/v1/publications/{query}"
# Of a batch; they name nothing that is there.
NUMBERS = {"query": "q", "batch": "0", "partition": "0", "attempt": "0", "chunk": "0"}
ANNOUNCED = {"stages": [{"partition": 0, "attempt": 0, "rows": 1}], "topics": ["ledger"]}
SAID = {"member": "m1", "subscriptions": {"ledger": "*"}, "queues": {"ledger": ["broker-a:0"]}}
HALVES = {"producer_group": "tellers", "messages": [{"topic": "ledger", "body": "x"}]}
LOCKS = {"topic": "ledger", "member": "m1", "queues": ["broker-a:0"]}
# Principals and their rights are the cluster's, not a namespace's: grants are written with whole names. So are broker groups.
OF_THE_CLUSTER = ("/v1/principals", "/v1/acls", "/v1/whoami", "/v1/broker-groups")
# In an order in which the owner can ask all of them: reads, changes, deletions.
ROWS = (
    row("GET", TOPIC + "/messages", "?key=hush-key"),
    row("GET", TOPIC + "/messages/{message_id}"),
    row("GET", TOPIC + "/queues/{queue}/messages", "?offset=earliest"),
    row("GET", TOPIC + "/requests/{correlation_id}"),
    row("GET", TOPIC + "/tail", "?from=earliest&idle=0s"),
    row("GET", TOPIC + "/stats"),
    row("GET", TOPIC + "/scheduled"),
    row("GET", TOPIC + "/offsets"),
    row("GET", TOPIC + "/route"),
    row("GET", TOPIC + "/placement"),
    row("GET", TOPIC),
    row("GET", "/v1/messages/{message_id}/trace", "?topic=ledger"),
    row("GET", GROUP),
    row("GET", GROUP + "/lag", "?topic=ledger"),
    row("GET", GROUP + "/offsets", "?topic=ledger"),
    row("GET", GROUP + "/assignments", "?topic=ledger"),
    row("GET", GROUP + "/locks", "?topic=ledger"),
    row("GET", GROUP + "/members"),
    row("GET", GROUP + "/dlq", "?topic=ledger"),
    row("GET", PRODUCER),
    row("GET", TRANSACTION),
    row("GET", "/v1/tasks/{task}"),
    row("POST", "/v1/reads/plan", json={"topics": [{"topic": "ledger"}], "sizes": True}),
    row("GET", "/v1/read-leases", creates=True),
    row("GET", "/v1/cluster", creates=True),
    row("GET", "/v1/topics", creates=True),
    row("GET", "/v1/groups", creates=True),
    row("GET", "/v1/producer-groups", creates=True),
    row("GET", "/v1/transactions", creates=True),
    row("PUT", GROUP + "/offsets", json={"topic": "ledger", "offsets": {"broker-a:1": 0}}),
    row("POST", GROUP + "/seek", json={"topic": "ledger", "to": "latest", "dry_run": True}),
    row("POST", GROUP + "/dlq/redrive", json={"topic": "ledger", "all": False, "dry_run": True}),
    row("POST", TOPIC + "/groups/{group}/ack", json={"receipt_handles": ["{receipt_handle}"]}),
    row(
        "POST",
        TOPIC + "/groups/{group}/settle",
        json={"entries": [{"receipt_handle": "{receipt_handle}", "action": "ack"}]},
    ),
    row("POST", TOPIC + "/replies", "?reply_to=broker-a:c1&correlation_id=c2", content=b"answer"),
    row("POST", "/v1/read-leases", json={"topics": [{"topic": "ledger"}]}),
    row("PUT", LEASE, json={"for": "1m"}),
    row("DELETE", LEASE),
    row("POST", TRANSACTION + "/commit"),
    row("POST", TRANSACTION + "/rollback"),
    row("POST", TRANSACTION + "/resolve", json={"outcome": "commit", "reason": "by hand"}),
    row("DELETE", TOPIC + "/scheduled/{recall_handle}"),
    row("DELETE", GROUP + "/locks", "?topic=ledger&member=m1"),
    row("DELETE", "/v1/tasks/{task}"),
    row("PUT", TOPIC + "/placement", json={"broker_groups": ["broker-a"]}),
    row("PATCH", TOPIC, json={"attributes": {"owner": "x"}}),
    row("PATCH", GROUP, json={"max_attempts": 2}),
    # From here on outsiders get objects of their own, which have the same names.
    row("PUT", TOPIC, json={"queues": 2}, creates=True),
    row("PUT", GROUP, json={}, creates=True),
    row("PUT", PRODUCER, json={}, creates=True),
    row("PUT", TOPIC + STAGED, json={"messages": [{"body": "x"}]}, creates=True),
    row("POST", PUBLICATION + "/batches/{batch}", json=ANNOUNCED),
    row("GET", PUBLICATION),
    row("GET", "/v1/publications", creates=True),
    row("DELETE", PUBLICATION + "/batches/{batch}"),
    row("POST", TOPIC + "/messages", content=b"x", creates=True),
    row("POST", TOPIC + "/messages/batch", json={"messages": [{"body": "x"}]}, creates=True),
    row("POST", TOPIC + "/requests", "?timeout=50ms&correlation_id=c3&client=c3", content=b"x", creates=True),
    row("POST", TOPIC + "/transactions", "?producer_group=tellers", content=b"x", creates=True),
    row("POST", "/v1/transactions", json=HALVES, creates=True),
    row("POST", TOPIC + "/groups/{group}/receive", json={"max_messages": 32}, creates=True),
    row("POST", PRODUCER + "/checks/receive", creates=True),
    row("POST", GROUP + "/members/heartbeat", json=SAID, creates=True),
    row("POST", GROUP + "/locks", json=LOCKS, creates=True),
    row("DELETE", GROUP + "/members/{member}", creates=True),
    row("DELETE", GROUP + "/dlq", "?confirm=tellers", creates=True),
    row("DELETE", GROUP, "?confirm=tellers", creates=True),
    row("DELETE", TOPIC, "?confirm=ledger", creates=True),
    row("DELETE", PRODUCER, creates=True),
)


def ask(mesh: Mesh, namespace: str, method: str, path: str, **options: Any) -> httpx.Response:
    """A patient request of a client of *namespace*; 504 is the answer of a request that nobody replied to."""
    headers = {**options.pop("headers", {}), **({HEADER_NAMESPACE: namespace} if namespace else {})}
    if "/requests?" in path:
        return mesh.settled(method, path, headers=headers, **options)
    return mesh.patient(method, path, headers=headers, **options)


def filled(value: Any, names: dict[str, str]) -> Any:
    """*value* with `{name}` replaced in every text."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    return [filled(item, names) for item in value] if isinstance(value, list) else value


def ask_row(mesh: Mesh, namespace: str, asked: Row, names: dict[str, str]) -> httpx.Response:
    """What *namespace*'s client gets."""
    path = filled(asked.path + asked.query, names)
    return ask(mesh, namespace, asked.method, path, **filled(asked.options, names))


def prepare(mesh: Mesh) -> dict[str, str]:
    """Everything that the owner can have, and its ids."""
    for path, document in (
        ("topics/ledger", {"queues": 2}),
        ("groups/tellers", {"max_attempts": 1}),
        ("producer-groups/tellers", {"check_after": "10m"}),
    ):
        assert ask(mesh, OWNER, "PUT", f"/v1/{path}", json=document).status_code in {200, 201}
    messages = "/v1/topics/ledger/messages"
    first = {"MQ-Key": "hush-key", "Idempotency-Key": "first"}
    sent = ask(mesh, OWNER, "POST", messages, content=b"hush-body", headers=first).json()
    later = {"Idempotency-Key": "later", "MQ-Delay": "1h"}
    delayed = ask(mesh, OWNER, "POST", messages, content=b"hush", headers=later).json()
    begun = {"MQ-Producer-Group": "tellers", "Idempotency-Key": "half"}
    half = ask(mesh, OWNER, "POST", "/v1/topics/ledger/transactions", content=b"hush", headers=begun).json()

    def receive() -> Any:
        path = "/v1/topics/ledger/groups/tellers/receive"
        return ask(mesh, OWNER, "POST", path, json={"invisible": "10m", "attempt_id": "a"}).json()["messages"]

    (message,) = eventually(receive, within_s=20, what="the owner's message")
    dead = {"entries": [{"receipt_handle": message["receipt_handle"], "action": "dead_letter", "reason": "hush"}]}
    assert ask(mesh, OWNER, "POST", "/v1/topics/ledger/groups/tellers/settle", json=dead).status_code == 200
    redrive = {"all": True, "dry_run": True}
    keyed = {"Idempotency-Key": "redrive"}
    task = ask(mesh, OWNER, "POST", "/v1/groups/tellers/dlq/redrive", json=redrive, headers=keyed).json()["task"]
    assert ask(mesh, OWNER, "POST", "/v1/groups/tellers/members/heartbeat", json=SAID).status_code == 200
    assert ask(mesh, OWNER, "POST", "/v1/groups/tellers/locks", json=LOCKS).status_code == 200
    # A request of the owner's that has its reply.
    ask(mesh, OWNER, "POST", "/v1/topics/ledger/requests?timeout=50ms&correlation_id=c1&client=c1", content=b"?")
    reply = "/v1/topics/ledger/replies?reply_to=broker-a:c1&correlation_id=c1"
    assert ask(mesh, OWNER, "POST", reply, content=b"hush-reply").status_code == 201
    leased = {"topics": [{"topic": "ledger"}], "for": "1m"}
    lease = eventually(
        lambda: ask(mesh, OWNER, "POST", "/v1/read-leases", json=leased).json().get("lease"),
        within_s=60,
        what="the mesh has the feature level of leases",
    )
    return {
        "topic": "ledger",
        "group": "tellers",
        "producer_group": "tellers",
        "member": "m1",
        "queue": sent["queue"],
        "message_id": sent["message_id"],
        "correlation_id": "c1",
        "transaction_id": half["transaction_id"],
        "receipt_handle": message["receipt_handle"],
        "recall_handle": delayed["recall_handle"],
        "task": task,
        "lease": lease,
        **NUMBERS,
    }


@pytest.mark.calm
def test_no_route_reaches_into_another_namespace(mesh: Mesh) -> None:
    """Not by names, not by ids and handles, not by names forged into paths; what is allowed makes objects of the asker's own."""
    names = prepare(mesh)
    forged = {name: quote(f"{OWNER}%{names[name]}", safe="") for name in ("topic", "group", "producer_group")}
    outsiders = [asked for asked in ROWS if asked.method != "DELETE" or not asked.creates]
    for asked in sorted(outsiders, key=lambda asked: asked.creates):
        for namespace in (OTHER, NONE):
            where = f"{asked.method} {asked.path} by '{namespace}'"
            answer = ask_row(mesh, namespace, asked, names)
            assert not any(secret in answer.text for secret in SECRETS), f"{where}: {answer.text}"
            assert not any(secret in str(answer.headers) for secret in SECRETS), f"{where}: {answer.headers}"
            assert answer.status_code in ({200, 201, 504} if asked.creates else {400, 404}), f"{where}: {answer.text}"
            if any(f"{{{name}}}" in asked.path for name in forged):
                refused = ask_row(mesh, namespace, asked, {**names, **forged})
                assert refused.status_code == 400, f"{where}, forged: {refused.text}"
                assert refused.json()["code"] in {"illegal-topic", "illegal-group"}, refused.text
    # Once more, now that the outsiders have a topic and groups of the same names: ids and handles open nothing there either.
    for asked in (asked for asked in outsiders if not asked.creates):
        for namespace in (OTHER, NONE):
            answer = ask_row(mesh, namespace, asked, names)
            where = f"{asked.method} {asked.path} by '{namespace}', who has its own: {answer.text}"
            assert not any(secret in answer.text for secret in SECRETS), where
            is_by_id = any(
                f"{{{name}}}" in str(asked) for name in names if name not in {*forged, *NUMBERS, "member", "queue"}
            )
            assert answer.status_code in ({400, 404} if is_by_id else {200, 201, 202, 400, 404}), where
    assert ask_row(mesh, OWNER, ROWS[3], names).text == "hush-reply"


@pytest.mark.calm
def test_the_owner_sees_its_names_as_it_wrote_them_on_every_route(mesh: Mesh) -> None:
    """No answer, error or header has the inner form; and the table has every route that there is."""
    document = mesh.call("GET", "/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in document.items() for method in methods}
    of_names = {route for route in routes if route[1].startswith("/v1/") and not route[1].startswith(OF_THE_CLUSTER)}
    assert {(asked.method, asked.path) for asked in ROWS} == of_names
    names = prepare(mesh)
    for asked in ROWS:
        where = f"{asked.method} {asked.path}"
        if asked.path.startswith(TRANSACTION) and asked.method == "POST":
            begun = ask(mesh, OWNER, "POST", "/v1/topics/ledger/transactions?producer_group=tellers", content=b"x")
            names["transaction_id"] = begun.json()["transaction_id"]
        if asked.method == "DELETE" and asked.path == PRODUCER:
            for one in ask(mesh, OWNER, "GET", "/v1/transactions").json()["transactions"]:
                ask(mesh, OWNER, "POST", f"/v1/transactions/{one['transaction_id']}/rollback")
        answer = ask_row(mesh, OWNER, asked, names)
        assert answer.status_code < 400 or answer.status_code == 504 or "settle" in where or "/ack" in where, (
            f"{where}: {answer.text}"
        )
        shown = f"{where}: {answer.text} {answer.headers}"
        assert f"{OWNER}%" not in shown, shown
        if asked.path == "/v1/topics":
            assert "ledger" in answer.text
        if asked.path == "/v1/groups":
            assert "tellers" in answer.text
        unknown = filled(asked.path, {**names, "topic": "unknown", "group": "unknown", "producer_group": "unknown"})
        if asked.method == "GET":
            assert f"{OWNER}%" not in ask(mesh, OWNER, "GET", unknown + asked.query).text


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("GET", "/v1/groups/any?topic=bank%25ledger", {}),
        ("GET", "/v1/groups/any/offsets?topic=bank%25ledger", {}),
        ("GET", "/v1/groups/any/lag?topic=bank%25ledger", {}),
        ("GET", "/v1/groups/any/assignments?topic=bank%25ledger", {}),
        ("GET", "/v1/groups/any/locks?topic=bank%25ledger", {}),
        ("GET", "/v1/groups/any/dlq?topic=bank%25ledger", {}),
        ("GET", "/v1/messages/x/trace?topic=bank%25ledger", {}),
        ("GET", "/v1/transactions?producer_group=bank%25tellers", {}),
        ("DELETE", "/v1/groups/any/locks?topic=bank%25ledger&member=m1", {}),
        ("POST", "/v1/topics/mine/transactions?producer_group=bank%25tellers", {"content": b"x"}),
        ("POST", "/v1/transactions", {"json": {"producer_group": "bank%tellers", "messages": [{"topic": "mine"}]}}),
        ("POST", "/v1/transactions", {"json": {"producer_group": "mine", "messages": [{"topic": "bank%ledger"}]}}),
        ("PUT", "/v1/groups/any/offsets", {"json": {"topic": "bank%ledger", "offsets": {"broker-a:0": 0}}}),
        ("POST", "/v1/groups/any/seek", {"json": {"topic": "bank%ledger", "to": "latest"}}),
        ("POST", "/v1/groups/any/dlq/redrive", {"json": {"topic": "bank%ledger"}}),
        ("POST", "/v1/groups/any/locks", {"json": {**LOCKS, "topic": "bank%ledger"}}),
        ("POST", "/v1/groups/any/members/heartbeat", {"json": {"member": "m", "subscriptions": {"bank%ledger": "*"}}}),
        ("POST", "/v1/groups/any/members/heartbeat", {"json": {"member": "m", "queues": {"bank%ledger": []}}}),
    ],
)
def test_a_name_with_a_namespace_in_a_body_or_query_is_refused(
    mesh: Mesh, method: str, path: str, options: dict[str, Any]
) -> None:
    """By the same error as any other wrong name, whoever writes it."""
    mesh.patient("PUT", "/v1/topics/mine", json={})
    for namespace in (NONE, OTHER):
        refused = ask(mesh, namespace, method, path, **options)
        assert refused.status_code == 400, refused.text
        assert refused.json()["code"] in {"illegal-topic", "illegal-group"}, refused.text


@pytest.mark.parametrize("wrong", ["", "a%b", "a.b", "-a", "x" * 64])
def test_a_wrong_namespace_is_refused_before_anything_is_done(mesh: Mesh, wrong: str) -> None:
    """400 that names the header; a name that does not fit together with its namespace, too."""
    refused = mesh.call("POST", "/v1/topics/any/messages", content=b"x", headers={HEADER_NAMESPACE: wrong})
    assert (refused.status_code, refused.json()["pointer"]) == (400, f"header/{HEADER_NAMESPACE}"), refused.text
    long = mesh.call("PUT", f"/v1/topics/{'t' * 120}", json={}, headers={HEADER_NAMESPACE: "n" * 20})
    assert (long.status_code, long.json()["code"]) == (400, "invalid-field")
    assert "at most 126" in long.json()["detail"]


def test_the_same_names_live_side_by_side_and_what_users_wrote_is_theirs(mesh: Mesh) -> None:
    """Bodies, properties, tags and keys with the namespace's own name in them come back as they were sent, in every form."""
    bodies = {"side-a": '{"topic":"side-a%x","n":12345678901234567890,"e":1.0E2}', "side-b": "side-b%plain"}
    for namespace, body in bodies.items():
        headers = {
            "Content-Type": "application/json" if body.startswith("{") else "text/plain",
            "MQ-Tag": f"{namespace}%tag",
            "MQ-Key": f"{namespace}%key",
            "MQ-Properties": f'{{"topic":"{namespace}%p"}}',
            "Idempotency-Key": "one",
        }
        sent = ask(mesh, namespace, "POST", "/v1/topics/same/messages", content=body.encode(), headers=headers)
        assert sent.status_code in {200, 201}, sent.text
        if sent.status_code == 201:
            assert sent.headers["location"].startswith("/v1/topics/same/queues/")
        query = f"/v1/topics/same/messages?key={quote(namespace + '%key')}"

        def find(namespace: str = namespace, query: str = query) -> Any:
            return ask(mesh, namespace, "GET", query).json()["messages"]

        (message,) = eventually(find, within_s=30, what="the message by its key")
        assert (message["tag"], message["keys"], message["properties"]) == (
            f"{namespace}%tag",
            [f"{namespace}%key"],
            {"topic": f"{namespace}%p"},
        )
        path = f"/v1/topics/same/queues/{message['queue']}/messages?offset={message['offset']}"
        for form in (NDJSON, MSGPACK, "application/json"):
            pulled = ask(mesh, namespace, "GET", path, headers={"Accept": form})
            assert (f"{namespace}%same" in pulled.text, "same" in pulled.text) == (False, True)
            written = body if form == MSGPACK or namespace == "side-b" else f'"json":{body}'
            assert written.encode() in pulled.content, pulled.content
        receive = "/v1/topics/same/groups/readers/receive?format=raw&wait=5s"
        raw = ask(mesh, namespace, "POST", receive, headers={"Accept": OCTETS})
        assert (raw.text, raw.headers["mq-topic"]) == (body, "same")
    assert "same" not in mesh.patient("GET", "/v1/topics?q=same").text


def test_sdk_and_command_line_work_in_a_namespace(mesh: Mesh) -> None:
    """Sent by the SDK, received by the command line, found by neither without it."""
    with (
        BlockingAdmin(mesh.endpoint, namespace="club") as admin,
        BlockingProducer(mesh.endpoint, namespace="club") as producer,
    ):
        admin.create_topic("notes", 1)
        admin.create_group("members")
        producer.send("notes", b"hello", idempotency_key="k")
    with BlockingAdmin(mesh.endpoint) as admin, pytest.raises(TopicNotFound):
        admin.topic("notes")
    command = [sys.executable, "-m", "tern_cli", "--namespace", "club", "recv", "notes", "members", "--wait", "10s"]
    done = subprocess.run(
        [*command, "--endpoint", mesh.endpoint], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stdout + done.stderr
    with BlockingConsumer(mesh.endpoint, "notes", "members", namespace="club", wait_ms=0) as consumer:
        assert consumer.receive(1) == []
