"""Every route of the table of requirements against a real mesh over TLS: owner, others, bad credentials; and what brokers and the audit hear.

The expectations are those of tests/unit/proxy/access/test_authorization_matrix.py: worked out from the table and the grants.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tern_proxy.routes.table import RULES
from tern_wire.principals.client_keys import bearer_text
from tern_wire.principals.principals import ROOT, Principal
from tests.support.mesh.secure_mesh import SecureMesh
from tests.support.proxy.guarded_mesh import EVERYTHING
from tests.support.proxy.guarded_mesh import grant as read_grant
from tests.support.proxy.route_samples import sample
from tests.unit.proxy.access.test_authorization_matrix import BUSINESS, GRANTS, code_of, expected

# Of an object that samples name and that is not there any more, or has ended: the mesh is real, and samples are done in order.
GONE = {
    *("topic-not-found", "group-not-found", "producer-group-not-found", "task-not-found", "transaction-unknown"),
    *("offset-moved", "limit-reached", "read-lease-not-found"),
    *("upgrade-unfinished", "batch-published"),
}


def put_principal(mesh: SecureMesh, name: str, grants: tuple[str, ...]) -> str:
    """A principal with those grants, and a key of it that every proxy knows."""
    return mesh.new_key(name, *(read_grant(text).document() for text in grants))


def prepare(client: httpx.Client) -> str:
    """What samples speak of is there; the id of a transaction."""
    for path, body in (("topics/orders", {"queues": 4}), ("groups/billing", {}), ("producer-groups/shop", {})):
        assert settled(client, "PUT", f"/v1/{path}", json=body).status_code in {200, 201}
    begun = settled(client, "POST", "/v1/topics/orders/transactions?producer_group=shop", content=b"x")
    assert begun.status_code == 201, begun.text
    return str(begun.json()["transaction_id"])


def settled(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """An answer that is no election's; and one that has not to wait for a quota of failures."""
    deadline_s = time.monotonic() + 20
    while True:
        answer = client.request(method, path, **more)
        if answer.status_code != 503 or time.monotonic() > deadline_s:
            return answer
        time.sleep(0.05)


@pytest.fixture(scope="module")
def every(secure_mesh: SecureMesh) -> Iterator[httpx.Client]:
    """A client that may do everything, to prepare what others are refused."""
    with secure_mesh.with_key(put_principal(secure_mesh, "preparing", EVERYTHING)) as client:
        yield client


@pytest.mark.parametrize("who", ["owner", "other tenant", "wrong action", "no grants", "everything", "root"])
def test_every_route_lets_through_whom_the_grants_say(secure_mesh: SecureMesh, every: httpx.Client, who: str) -> None:
    """The whole table, at both proxies in turn: 0 wrong."""
    wrong = []
    grants = GRANTS[who]
    name = who.replace(" ", "-")
    key = secure_mesh.root_key if grants is None else put_principal(secure_mesh, name, grants)
    principal = ROOT if grants is None else Principal(name=name, grants=tuple(map(read_grant, grants)))
    transaction_id = prepare(every)
    with secure_mesh.with_key(key) as one, secure_mesh.with_key(key, proxy=1) as other:
        for number, rule in enumerate(RULES):
            asked = sample(rule, transaction_id=transaction_id)
            answer = settled((one, other)[number % 2], asked.method, asked.path, **asked.more)
            if answer.status_code < 300 and (rule.method == "DELETE" or "{transaction_id}" in rule.path):
                transaction_id = prepare(every)
            refusals, got = expected(principal, rule), (answer.status_code, code_of(answer))
            is_right = got in refusals if refusals else got[0] < 400 or got[1] in BUSINESS | GONE
            # The task of the samples is none, which whoever may see tasks is told first.
            is_right |= "{task}" in rule.path and got[1] == "task-not-found"
            if not is_right:
                wrong.append(f"{rule.method} {rule.path}: {got} instead of {refusals or 'anything but a refusal'}")
    assert wrong == []


@pytest.mark.parametrize("how", ["none", "unknown", "revoked", "expired"])
def test_no_route_answers_without_good_credentials(secure_mesh: SecureMesh, how: str) -> None:
    """401, or 429 after ten of them; but for the health of the process, which is one constant text."""
    key = {"none": "", "unknown": bearer_text("U" * 16, bytes(range(32)))}.get(how, "")
    if how == "revoked":
        key = put_principal(secure_mesh, "leaver", EVERYTHING)
        assert secure_mesh.settled("DELETE", f"/v1/principals/leaver/keys/{key.split('_')[1]}").status_code == 204
        wait_refused(secure_mesh, key)
    if how == "expired":
        document = {"grants": [read_grant(text).document() for text in EVERYTHING]}
        assert secure_mesh.settled("PUT", "/v1/principals/late", json=document).status_code in {200, 201}
        at_ms = int(time.time() * 1_000) + 1_500
        answer = secure_mesh.settled("POST", "/v1/principals/late/keys", json={"expires_at": at_ms})
        assert answer.status_code == 201, answer.text
        key = str(answer.json()["key"])
        wait_refused(secure_mesh, key)
    statuses: set[int] = set()
    with secure_mesh.with_key(key) as client:
        for rule in RULES:
            asked = sample(rule)
            answer = client.request(asked.method, asked.path, **asked.more)
            if rule.is_anonymous:
                assert answer.content == b'{"status":"alive"}'
            else:
                statuses.add(answer.status_code)
    assert statuses <= {401, 429}
    assert statuses == {401} or how != "none"


def wait_refused(mesh: SecureMesh, key: str) -> None:
    """Until both proxies refuse *key*, which takes at most 5 s."""
    deadline_s = time.monotonic() + 5
    for number in range(2):
        with mesh.with_key(key, proxy=number) as client:
            while client.get("/v1/whoami").status_code == 200:
                assert time.monotonic() < deadline_s, "a revoked or expired key is good for more than 5 s"
                time.sleep(0.05)


def test_brokers_hear_for_whom_they_change_something(secure_mesh: SecureMesh) -> None:
    """An admin request is one line in the audit log of the broker that leads, with the principal, and the proxy that asked."""
    key = put_principal(secure_mesh, "declarer", ("allow CREATE topic heard-of*",))
    with secure_mesh.with_key(key) as client:
        assert settled(client, "PUT", "/v1/topics/heard-of-it").status_code == 201
    logs = [path.read_text() for path in (secure_mesh.directory / "logs").glob("broker-*.log")]
    lines = [line for log in logs for line in log.splitlines() if "ternmq.audit" in line and "heard-of-it" in line]
    assert len(lines) == 1
    assert '"principal":"declarer"' in lines[0]


def test_the_audit_topic_has_it_too(secure_mesh: SecureMesh) -> None:
    """Read with AUDIT of the cluster, and with nothing else."""
    key = put_principal(secure_mesh, "audited", ("allow CREATE topic in-audit*",))
    auditor = put_principal(secure_mesh, "auditor", ("allow AUDIT cluster *",))
    with secure_mesh.with_key(key) as client:
        assert settled(client, "PUT", "/v1/topics/in-audit").status_code == 201
    deadline_s = time.monotonic() + 15
    with secure_mesh.with_key(auditor) as client:
        topic = "/v1/topics/tern_AUDIT_TOPIC"
        while True:
            queues = settled(client, "GET", f"{topic}/offsets").json().get("queues", [])
            pulls = [
                settled(client, "GET", f"{topic}/queues/{row['queue']}/messages?max_messages=9999").text
                for row in queues
            ]
            if any('"path":"/v1/topics/in-audit"' in text for text in pulls):
                break
            assert time.monotonic() < deadline_s, "the audit topic does not have it"
            time.sleep(0.1)
    with secure_mesh.with_key(put_principal(secure_mesh, "curious", ("allow ALL topic *",))) as client:
        assert settled(client, "GET", f"{topic}/queues/broker-a:0/messages").status_code == 404
