"""Every route of the table of requirements x every kind of caller: who gets through, who is refused, and who must not learn that anything is there.

What is expected is worked out here from the table's own text and the caller's grants; what happens is asked of the proxy.
"""

from typing import Any

import pytest

from tern_proxy.core.access.requirements import Requirement, Rule
from tern_proxy.routes.table import RULES
from tern_wire.link.commands import CommandKind
from tern_wire.principals.principals import ROOT, Principal, is_permitted
from tern_wire.transactions import TransactionId
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.proxy.guarded_mesh import (
    EVERYTHING,
    LOOKING,
    OTHER,
    OWN,
    ROOT_KEY,
    GuardedMesh,
    grant,
    guarded_mesh,
    key_of,
)
from tests.support.proxy.route_samples import NAMES, sample

pytestmark = pytest.mark.anyio
GRANTS = {
    "owner": OWN,
    "other tenant": OTHER,
    "wrong action": LOOKING,
    "no grants": (),
    "everything": EVERYTHING,
    "everything but a denial": (*EVERYTHING, "deny ALL topic orders", "deny ALL group billing"),
    "sender": ("allow PUB topic orders",),
    "receiver": ("allow SUB topic orders", "allow SUB,ACK group billing"),
    # What is named in queries and bodies is asked for as well as what is in the path.
    "groups only": ("allow ALL group *", "allow ALL producer-group *"),
    "topics only": ("allow ALL topic *",),
    "topics and groups": ("allow ALL topic *", "allow ALL group *"),
    "root": None,
}
# Of principals that would get through, if only their credentials were good.
BAD = (
    "none",
    "expired",
    "not yet",
    "revoked",
    "wrong secret",
    "from elsewhere",
    "another scheme",
    "said twice",
    "empty",
)
# What a condition of the table comes to in the sample.
HOLDS = {
    "": True,
    "it names settings": True,
    "it names one": True,
    "it is a consumer": True,
    "they are consumers": True,
    "it is a producer": False,
    "they are producers": False,
    "it is of the caller": True,
    "it settles": False,
    "it is created by its first use": False,
}
MISSING = {"topic": "topic-not-found", "group": "group-not-found", "producer-group": "producer-group-not-found"}
NO_LEASE = f"{'b' * 24}.broker-a"
MISSING_BY_PLACE = {
    "of the transaction": "transaction-unknown",
    "of the task": "task-not-found",
    "of the lease": "read-lease-not-found",
    "of the publication": "publication-not-found",
}
# What a request that was let through may meet in the stand-ins behind the proxy: it exists, and says no to the sample.
BUSINESS = {
    *("message-not-found", "no-reply", "reply-timeout", "invalid-field", "recall-handle-invalid", "member-not-found"),
    *(
        "principal-not-found",
        "key-not-found",
        "producer-group-busy",
        "transaction-resolved",
        "not-scheduled",
        "warming-up",
        "publication-not-found",
    ),
}


def name_of(requirement: Requirement, namespace: str = "") -> str:
    """The whole name that the sample has for what *requirement* speaks of."""
    own = "" if requirement.kind == "cluster" else NAMES[requirement.kind.replace("-", "_")]
    return f"{namespace}%{own}" if own and namespace else own


def expected(principal: Principal, rule: Rule, namespace: str = "") -> set[tuple[int, str]]:
    """Refusals that *principal* may get from *rule*, status and code; none if it is to be let through."""
    refusals = set()
    for requirement in rule.requirements:
        name = name_of(requirement, namespace)
        if requirement.condition == "it is of the caller" and is_permitted(principal, "ADMIN", "cluster", ""):
            continue  # an operator gives up whoever's
        if not HOLDS[requirement.condition] or is_permitted(principal, requirement.action, requirement.kind, name):
            continue
        is_hidden = requirement.kind != "cluster" and requirement.action != "CREATE"
        if is_hidden and not is_permitted(principal, "DESCRIBE", requirement.kind, name):
            refusals.add((404, MISSING_BY_PLACE.get(requirement.place, MISSING[requirement.kind])))
        else:
            refusals.add((403, "forbidden"))
        if requirement.place == "of the publication":
            # Nobody has begun it, so its topics are not known.
            refusals.add((404, MISSING_BY_PLACE[requirement.place]))
    return refusals


async def prepare(mesh: GuardedMesh, namespace: str = "") -> dict[str, str]:
    """Everything that samples speak of is there, in *namespace*; the names of a transaction and a task of it."""
    prefix, inside = (f"{namespace}%", {"MQ-Namespace": namespace}) if namespace else ("", {})
    gone = [topic for topic in (f"{prefix}orders", f"{prefix}invoices") if topic not in mesh.broker.topics]
    for topic in gone:
        mesh.broker.create_topic(topic, 4)
    if f"{prefix}billing" not in mesh.broker.groups:
        mesh.broker.create_group(f"{prefix}billing")
    if gone:
        await mesh.proxy.cache.refresh()  # takes POLL_INTERVAL_MIN_S
    declared = await mesh.ask("PUT", "/v1/producer-groups/shop", key_of("preparing"), json={}, headers=inside)
    assert declared.status_code in {200, 201}, declared.text
    path = "/v1/topics/orders/transactions?producer_group=shop"
    begun = await mesh.ask("POST", path, key_of("preparing"), content=b"x", headers=inside)
    assert begun.status_code == 201, begun.text
    redrive = "/v1/groups/billing/dlq/redrive"
    task = await mesh.ask("POST", redrive, key_of("preparing"), json={"topic": "orders"}, headers=inside)
    assert task.status_code == 202, task.text
    for old in list(mesh.broker.engine.state.read_leases.leases):
        mesh.broker.propose(CommandKind.READ_LEASE, {"op": "end", "lease": old})
    mesh.broker.keep_up()  # the feature level rises
    topics = {"topics": [{"topic": "orders"}]}
    lease = await mesh.ask("POST", "/v1/read-leases", key_of("preparing"), json=topics, headers=inside)
    assert lease.status_code == 201, lease.text
    names = {"transaction_id": begun, "task": task, "lease": lease}
    return {name: answer.json()[name] for name, answer in names.items()}


def code_of(answer: object) -> str:
    """The problem's code, "" when it is none."""
    headers, document = answer.headers, answer  # type: ignore[attr-defined]
    return str(document.json()["code"]) if "problem" in headers.get("content-type", "") else ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("who", GRANTS)
async def test_everybody_gets_what_their_grants_say(who: str) -> None:
    """Each route lets through those who may do all that it asks, and nobody else; what may not be seen is not there."""
    wrong = []
    async with guarded_mesh() as mesh:
        mesh.known.put("preparing", EVERYTHING)
        grants = GRANTS[who]
        key = ROOT_KEY if grants is None else mesh.known.put("caller", grants)
        principal = ROOT if grants is None else Principal(name="caller", grants=tuple(map(grant, grants)))
        for rule in RULES:
            asked = sample(rule, **await prepare(mesh))
            answer = await mesh.ask(asked.method, asked.path, key, **asked.more)
            refusals, got = expected(principal, rule), (answer.status_code, code_of(answer))
            is_right = got in refusals if refusals else got[0] < 400 or got[1] in BUSINESS
            if not is_right:
                wrong.append(f"{rule.method} {rule.path}: {got} instead of {refusals or 'anything but a refusal'}")
    assert wrong == []


@pytest.mark.parametrize(
    "grants",
    [
        OWN,
        EVERYTHING,
        ("allow ALL topic acme%orders", "allow ALL group acme%billing", "allow ALL producer-group acme%shop"),
        (
            "allow ALL topic acme%*",
            "allow ALL group acme%*",
            "allow ALL producer-group acme%*",
            "deny PUB topic acme%orders",
        ),
    ],
)
async def test_rights_in_a_namespace_are_those_to_whole_names(grants: tuple[str, ...]) -> None:
    """What one may do to `orders` says nothing of `acme%orders`, wherever the request has the name: in its path, its query or its body."""
    wrong = []
    async with guarded_mesh() as mesh:
        mesh.known.put("preparing", EVERYTHING)
        key = mesh.known.put("caller", grants)
        principal = Principal(name="caller", grants=tuple(map(grant, grants)))
        for rule in RULES:
            asked = sample(rule, **await prepare(mesh, "acme"))
            headers = {**asked.more.get("headers", {}), "MQ-Namespace": "acme"}
            answer = await mesh.ask(asked.method, asked.path, key, **{**asked.more, "headers": headers})
            refusals, got = expected(principal, rule, "acme"), (answer.status_code, code_of(answer))
            is_right = got in refusals if refusals else got[0] < 400 or got[1] in BUSINESS
            if not is_right:
                wrong.append(f"{rule.method} {rule.path}: {got} instead of {refusals or 'anything but a refusal'}")
    assert wrong == []


@pytest.mark.parametrize("how", BAD)
async def test_without_good_credentials_there_is_one_answer(how: str) -> None:
    """Whatever is wrong with them: 401, the same document for every route, there or not; but for the health of the process."""
    documents = set()
    async with guarded_mesh() as mesh:
        key = mesh.known.put("caller", EVERYTHING, **credentials(how))
        if how == "revoked":
            assert (await mesh.ask("GET", "/v1/whoami", key)).status_code == 200
            mesh.known.revoke("caller")
        for number, rule in enumerate([*RULES, Rule(method="GET", path="/v1/nothing/here")]):
            mesh.clock.ms += 61_000  # as if somebody tried once a minute: 429 has tests of its own
            asked = sample(rule)
            answer = await mesh.http.request(
                asked.method, asked.path, headers=headers_of(how, key, mesh.clock.ms), **asked.more
            )
            if rule.is_anonymous:
                assert (answer.status_code, answer.content) == (200, b'{"status":"alive"}')
                continue
            assert answer.status_code == 401, f"{rule.method} {rule.path}: {answer.status_code} {answer.text}"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            if rule.method != "HEAD":
                document = answer.json()
                documents.add(
                    tuple(sorted((k, str(v)) for k, v in document.items() if k not in {"instance", "request_id"}))
                )
            assert number or how != "empty" or documents
    assert len(documents) == 1


def credentials(how: str) -> dict[str, Any]:
    """What the table says of the caller's key."""
    known: dict[str, dict[str, Any]] = {
        "expired": {"key": {"expires_ms": NOW_MS}},
        "not yet": {"key": {"not_before_ms": NOW_MS + 10**10}},
        "from elsewhere": {"key": {"networks": ("10.0.0.0/8",)}},
    }
    return known.get(how, {})


def headers_of(how: str, key: str, now_ms: int) -> list[tuple[str, str]]:
    """The headers that the caller sends."""
    bearer = ("Authorization", f"Bearer {key}")
    return {
        "none": [],
        "wrong secret": [("Authorization", f"Bearer {key[:-3]}AAA")],
        "another scheme": [("Authorization", f"Basic {key}")],
        "said twice": [bearer, bearer],
        "empty": [("Authorization", "")],
    }.get(how, [bearer])


async def test_a_hidden_object_answers_exactly_as_a_missing_one() -> None:
    """Byte for byte but for the name, the path and the request's id: for every route that hides anything."""
    differing = []
    async with guarded_mesh() as mesh:
        mesh.known.put("preparing", EVERYTHING)
        key = mesh.known.put("caller", OTHER)
        names = await prepare(mesh)
        gone = mesh.proxy.transaction_ids("").make(TransactionId("broker-a", 1 << 40, 77))
        for rule in RULES:
            missing = {"topic": "orderz", "group": "billinz", "producer_group": "shoq"}
            here = sample(rule, **names)
            there = sample(rule, transaction_id=gone, task="a" * 24, lease=NO_LEASE, **missing)
            answers = [await mesh.ask(each.method, each.path, key, **each.more) for each in (here, there)]
            if answers[0].status_code != 404:
                continue
            texts = [answer.text for answer in answers]
            for name, other in missing.items():
                texts[1] = texts[1].replace(other, NAMES[name])
            texts[1] = texts[1].replace(gone, names["transaction_id"]).replace("a" * 24, names["task"])
            texts[1] = texts[1].replace(NO_LEASE, names["lease"])
            ids = [answer.headers["mq-request-id"] for answer in answers]
            if texts[0].replace(ids[0], "") != texts[1].replace(ids[1], ""):
                differing.append(f"{rule.method} {rule.path}: {texts}")
    assert differing == []
