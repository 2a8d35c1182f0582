"""The guard as a whole: keys and their rotation, guesses, quotas, the audit, what lists show, and what a handler still refuses."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tern_proxy.auto_create import AutoCreate
from tern_wire.limits import AUDITED_REFUSALS_PER_S, AUTH_FAILURES_PER_MIN
from tern_wire.principals.client_keys import ROOT_KID
from tern_wire.principals.principals import Principal, PrincipalTable
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.loops import eventually
from tests.support.proxy.guarded_mesh import (
    EVERYTHING,
    OTHER,
    OWN,
    ROOT_KEY,
    GuardedMesh,
    client_key,
    grant,
    guarded_mesh,
    key_of,
)

pytestmark = pytest.mark.anyio
SEND = "/v1/topics/orders/messages"


async def test_two_keys_of_a_principal_are_good_at_once() -> None:
    """A key is rotated without a gap: both are the same principal until the old one is taken away."""
    old, new = key_of("app", 1), key_of("app", 2)
    async with guarded_mesh() as mesh:
        keys = (client_key(old), client_key(new))
        both = Principal(name="app", grants=tuple(map(grant, OWN)), keys=keys)
        mesh.known.table = PrincipalTable.of([both], 1)
        assert {(await mesh.ask("POST", SEND, key, content=b"x")).status_code for key in (old, new)} == {201}
        mesh.known.table = PrincipalTable.of([Principal(name="app", grants=both.grants, keys=keys[1:])], 2)
        assert (await mesh.ask("POST", SEND, old, content=b"x")).status_code == 401
        assert (await mesh.ask("POST", SEND, new, content=b"x")).status_code == 201


async def test_a_grant_that_is_taken_away_is_gone_with_the_next_table() -> None:
    """What was remembered of a principal is not used when its grants have changed."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN)
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 201
        mesh.known.put("app", ("allow DESCRIBE topic orders*",))
        assert (await mesh.ask("POST", SEND, key, content=b"x")).json()[
            "required_permission"
        ] == "PUB of topic 'orders'"


async def test_a_key_ends_at_its_time_although_it_was_good_before() -> None:
    """A remembered session ends with its key, to the millisecond."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN, key={"expires_ms": NOW_MS + 1_000})
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 201
        mesh.clock.ms = NOW_MS + 999
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 201
        mesh.clock.ms = NOW_MS + 1_000
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 401


async def test_networks_narrow_a_key() -> None:
    """Good from its networks only, also when it was good from there a moment ago."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN, key={"networks": ("127.0.0.0/8",)})
        headers = {"Authorization": f"Bearer {key}", "Content-Length": "1"}
        statuses = []
        for address in ("127.0.0.1", "192.0.2.7", "127.0.0.9"):
            exchange = mesh.raw("POST", SEND, headers)
            exchange._scope["client"] = (address, 50_000)
            exchange.push(b"x")
            await exchange.task
            statuses.append(exchange.status)
        assert statuses == [201, 401, 201]


async def test_guesses_are_slowed_down_and_the_right_key_is_not() -> None:
    """Ten wrong ones a minute are told so, then 429 with Retry-After; whoever has the right key of that name is served all the time."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN)
        wrong = key[:-2] + "AA"
        statuses = [(await mesh.ask("GET", "/v1/whoami", wrong)).status_code for _ in range(AUTH_FAILURES_PER_MIN + 2)]
        assert statuses == [401] * AUTH_FAILURES_PER_MIN + [429, 429]
        assert int((await mesh.ask("GET", "/v1/whoami", wrong)).headers["retry-after"]) > 50
        assert (await mesh.ask("GET", "/v1/whoami", key)).status_code == 200
        other = key_of("somebody")
        assert (await mesh.ask("GET", "/v1/whoami", other)).status_code == 401
        mesh.clock.ms += 60_001
        assert (await mesh.ask("GET", "/v1/whoami", wrong)).status_code == 401


async def test_until_principals_are_known_nobody_but_root_is_judged() -> None:
    """A proxy that has just started says so, and not that a key is wrong."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN)
        mesh.known.is_ready = False
        answer = await mesh.ask("GET", "/v1/whoami", key)
        assert (answer.status_code, answer.json()["code"]) == (503, "warming-up")
        assert (await mesh.ask("GET", "/v1/whoami", ROOT_KEY)).json()["root"] is True
        mesh.known.is_ready, mesh.known.is_whole = True, False
        assert (await mesh.ask("GET", "/v1/whoami", key)).status_code == 200
        assert (await mesh.ask("GET", "/v1/whoami", key_of("nobody"))).status_code == 503


async def test_a_key_that_was_made_at_another_proxy_a_moment_ago_is_good_at_once() -> None:
    """Before it is refused, brokers are asked whether there is news; guesses cannot make that a load."""
    async with guarded_mesh() as mesh:
        asked = 0
        fresh = key_of("fresh")

        async def refresh() -> None:
            nonlocal asked
            asked += 1
            if asked == 2:
                mesh.known.put("fresh", OWN)

        mesh.known.refresh = refresh  # type: ignore[method-assign]
        assert [(await mesh.ask("POST", SEND, fresh, content=b"x")).status_code for _ in range(5)] == [401] * 5
        assert asked == 1
        mesh.clock.ms += 500
        assert (await mesh.ask("POST", SEND, fresh, content=b"x")).status_code == 201
        assert (await mesh.ask("POST", "/v1/topics/invoices/messages", fresh, content=b"x")).status_code == 404
        assert asked == 2


async def test_a_quota_of_requests_is_a_429_with_the_time_to_wait() -> None:
    """A second's worth at once, then as fast as the quota; other principals are not touched."""
    async with guarded_mesh() as mesh:
        key, other = mesh.known.put("app", OWN, requests_per_s=5), mesh.known.put("other", OTHER)
        statuses = [(await mesh.ask("GET", "/v1/whoami", key)).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        refused = await mesh.ask("GET", "/v1/whoami", key)
        assert (refused.json()["code"], refused.json()["limit"]) == ("quota-exceeded", 5)
        assert (await mesh.ask("GET", "/v1/whoami", other)).status_code == 200
        mesh.clock.ms += int(refused.json()["retry_after_ms"])
        assert (await mesh.ask("GET", "/v1/whoami", key)).status_code == 200


async def test_a_quota_of_bytes_counts_bodies_in_both_directions_and_is_owed() -> None:
    """One large message passes, and is paid for by waiting; what is received counts as what is sent."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN, bytes_per_s=1_000)
        assert (await mesh.ask("POST", SEND, key, content=b"x" * 10_000)).status_code == 201
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 429
        mesh.clock.ms += 9_000
        assert (await mesh.ask("POST", SEND, key, content=b"x")).status_code == 429
        mesh.clock.ms += 3_000
        receipt = await mesh.ask("POST", "/v1/topics/orders/groups/billing/receive?max_messages=9", key)
        assert receipt.status_code == 200
        assert len(receipt.content) > 10_000
        assert (await mesh.ask("GET", "/v1/whoami", key)).status_code == 429


async def test_lists_show_what_the_principal_may_see() -> None:
    """Topics, groups, producer groups and transactions of others are not in them, nor in their cursors."""
    async with guarded_mesh(topics=("orders", "invoices", "orders-2"), groups=("billing", "paying")) as mesh:
        every = mesh.known.put("every", EVERYTHING)
        keys = {"owner": mesh.known.put("owner", OWN), "other": mesh.known.put("other", OTHER)}
        for name, owner in (("shop", "owner"), ("bank", "other")):
            assert (await mesh.ask("PUT", f"/v1/producer-groups/{name}", keys[owner], json={})).status_code == 201
        begin = "/v1/topics/orders/transactions?producer_group=shop"
        assert (await mesh.ask("POST", begin, keys["owner"], content=b"x")).status_code == 201
        seen: dict[str, list[list[str]]] = {}
        for who, key in {**keys, "every": every}.items():
            seen[who] = [
                sorted(row[field] for row in (await mesh.ask("GET", path, key)).json()[rows])
                for path, rows, field in (
                    ("/v1/topics", "topics", "topic"),
                    ("/v1/groups", "groups", "group"),
                    ("/v1/producer-groups", "producer_groups", "producer_group"),
                    ("/v1/transactions", "transactions", "producer_group"),
                )
            ]
        assert seen["owner"] == [["orders", "orders-2"], ["billing"], ["shop"], ["shop"]]
        assert seen["other"] == [["invoices"], ["paying"], ["bank"], []]
        assert seen["every"] == [["invoices", "orders", "orders-2"], ["billing", "paying"], ["bank", "shop"], ["shop"]]
        page = (await mesh.ask("GET", "/v1/groups?limit=1", keys["other"])).json()
        assert ([row["group"] for row in page["groups"]], page["next_cursor"]) == (["paying"], "")


async def test_a_transaction_of_several_topics_needs_all_of_them() -> None:
    """One topic of another tenant among the messages, and nothing is begun."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("owner", OWN)
        assert (await mesh.ask("PUT", "/v1/producer-groups/shop", key, json={})).status_code == 201
        messages = [{"topic": "orders", "body": "x"}, {"topic": "invoices", "body": "x"}]
        body = {"producer_group": "shop", "messages": messages}
        answer = await mesh.ask("POST", "/v1/transactions", key, json=body)
        assert (answer.status_code, answer.json()["topic"]) == (404, "invoices")
        assert (await mesh.ask("GET", "/v1/transactions", key)).json()["transactions"] == []


async def test_the_id_of_anothers_transaction_is_worth_nothing() -> None:
    """Who has it can neither see it nor end it, and is told what is told of an id that never was; the principal is in the id."""
    async with guarded_mesh() as mesh:
        owner, other = mesh.known.put("owner", OWN), mesh.known.put("other", OTHER)
        assert (await mesh.ask("PUT", "/v1/producer-groups/shop", owner, json={})).status_code == 201
        begun = await mesh.ask("POST", "/v1/topics/orders/transactions?producer_group=shop", owner, content=b"x")
        transaction_id = begun.json()["transaction_id"]
        number = mesh.proxy.transaction_ids("").read(transaction_id).principal
        assert number == mesh.known.table.principals["owner"].number
        mesh.proxy.producer_group_names.clear()  # as at another proxy
        for verb, method in (("", "GET"), ("/commit", "POST"), ("/rollback", "POST"), ("/resolve", "POST")):
            body = {"json": {"outcome": "commit", "reason": "because"}} if verb == "/resolve" else {}
            answer = await mesh.ask(method, f"/v1/transactions/{transaction_id}{verb}", other, **body)
            assert (answer.status_code, answer.json()["code"]) == (404, "transaction-unknown")
        assert (await mesh.ask("POST", f"/v1/transactions/{transaction_id}/commit", owner)).json()[
            "state"
        ] == "committed"


async def test_a_receipt_handle_of_another_group_is_refused() -> None:
    """Rights are those of the path, and a handle of another topic or group is none there."""
    async with guarded_mesh() as mesh:
        owner, other = mesh.known.put("owner", OWN), mesh.known.put("other", OTHER)
        await mesh.ask("POST", SEND, owner, content=b"x")
        received = await mesh.ask("POST", "/v1/topics/orders/groups/billing/receive", owner)
        handles = {"receipt_handles": [received.json()["messages"][0]["receipt_handle"]]}
        there = await mesh.ask("POST", "/v1/topics/orders/groups/billing/ack", other, json=handles)
        assert (there.status_code, there.json()["code"]) == (404, "topic-not-found")
        own = await mesh.ask("POST", "/v1/topics/invoices/groups/paying/ack", other, json=handles)
        assert "receipt-invalid" in own.text


async def test_a_receive_that_settles_needs_ack() -> None:
    """SUB alone leases messages; what comes along to be settled asks for more."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("reader", ("allow SUB topic orders", "allow SUB group billing"))
        path = "/v1/topics/orders/groups/billing/receive"
        assert (await mesh.ask("POST", path, key)).status_code == 200
        settle = {"settle": [{"receipt_handle": "x"}]}
        answer = await mesh.ask("POST", path, key, json=settle)
        assert (answer.status_code, answer.json().get("required_permission")) == (403, "ACK of group 'billing'")


async def test_a_first_use_creates_nothing_without_create() -> None:
    """Where topics and groups are made by first use, PUB and SUB do not make them."""
    async with guarded_mesh(auto_create=AutoCreate(topics=True, groups=True)) as mesh:
        key = mesh.known.put("sender", ("allow PUB topic orders*",))
        answer = await mesh.ask("POST", "/v1/topics/orders-new/messages", key, content=b"x")
        assert (answer.status_code, answer.json()["required_permission"]) == (403, "CREATE of topic 'orders-new'")
        assert "orders-new" not in mesh.broker.topics
        key = mesh.known.put("sender", ("allow PUB,CREATE topic orders*",))
        assert (await mesh.ask("POST", "/v1/topics/orders-new/messages", key, content=b"x")).status_code == 201


async def test_replies_are_found_by_whoever_asked_alone() -> None:
    """The same client and correlation id of another principal is another address."""
    async with guarded_mesh() as mesh:
        one = mesh.known.put("one", ("allow PUB topic orders",))
        two = mesh.known.put("two", ("allow PUB,SUB topic orders", "allow SUB group billing"))
        path = "/v1/topics/orders/requests?client=shop&correlation_id=c-1&timeout=1ms"
        assert (await mesh.ask("POST", path, one, content=b"x")).status_code == 504
        received = (await mesh.ask("POST", "/v1/topics/orders/groups/billing/receive", two)).json()["messages"][0]
        reply_to = received["reply_to"]
        assert "shop" not in reply_to
        answer = f"/v1/topics/orders/replies?correlation_id=c-1&reply_to={reply_to}"
        assert (await mesh.ask("POST", answer, two, content=b"secret")).status_code == 201
        asking = "/v1/topics/orders/requests/c-1?client=shop"
        assert (await mesh.ask("GET", asking, two)).json()["code"] == "no-reply"
        assert (await mesh.ask("GET", asking, one)).content == b"secret"


# The audit ---------------------------------------------------------------------------------------------------------
def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The audit's events in the log."""
    return [vars(record) for record in caplog.records if record.name == "ternmq.audit"]


async def test_refusals_and_admin_decisions_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    """One line each: who, with which key, what, of which object, from where; never a key, and nothing of ordinary requests."""
    caplog.set_level(logging.INFO, "ternmq.audit")
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN)
        await mesh.ask("POST", SEND, key, content=b"x")
        await mesh.ask("PATCH", "/v1/topics/orders", key, json={"queues": 5})
        await mesh.ask("POST", "/v1/topics/invoices/messages", key, content=b"x")
        await mesh.ask("GET", "/v1/whoami", key[:-2] + "AA")
        # Beside these are the events that the broker has logged.
        events = [event for event in told(caplog) if "decision" in event]
        assert [event["decision"] for event in events] == ["allowed", "denied", "denied"]
        assert {**events[0], "route": "PATCH /v1/topics/{topic}"} == events[0]
        assert (events[0]["principal"], events[0]["status"]) == ("app", 200)
        assert (events[1]["action"], events[1]["kind"], events[1]["object"]) == ("PUB", "topic", "invoices")
        assert (events[2]["reason"], events[2]["kid"]) == ("a wrong key", key.split("_")[1])
        assert not any(key.split("_")[2][:20] in str(value) for event in events for value in event.values())


async def test_a_flood_of_refusals_is_counted_and_not_written_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    """So many a second are told, then how many were not: whoever has no key must not fill a disk."""
    caplog.set_level(logging.INFO, "ternmq.audit")
    async with guarded_mesh() as mesh:
        for _ in range(AUDITED_REFUSALS_PER_S + 50):
            assert (await mesh.ask("GET", "/v1/whoami")).status_code == 401
        assert len(told(caplog)) == AUDITED_REFUSALS_PER_S
        mesh.clock.ms += 1_000
        await mesh.ask("GET", "/v1/whoami")
        assert told(caplog)[-1]["denied_and_not_told"] == 50


async def test_audited_events_reach_a_topic_that_asks_for_audit() -> None:
    """They are stored once, and read with AUDIT of the cluster; grants of all topics do not reach them, and nobody sends there."""
    async with guarded_mesh() as mesh:
        every, auditor = mesh.known.put("every", EVERYTHING[:3]), mesh.known.put("auditor", ("allow AUDIT cluster *",))
        await mesh.ask("DELETE", "/v1/topics/orders?confirm=orders", every)
        async with running(mesh):
            await eventually(lambda: mesh.guard.audit.counts["stored"] >= 1, "the audit is stored")
        path = "/v1/topics/test_AUDIT_TOPIC"
        found = []
        for queue in range(mesh.broker.topics["test_AUDIT_TOPIC"].queues):
            pulled = await mesh.ask("GET", f"{path}/queues/broker-a:{queue}/messages", auditor)
            found += [message["json"] for message in pulled.json()["messages"]]
        assert any("DELETE /v1/topics/{topic}" in str(body) for body in found)
        assert (await mesh.ask("GET", f"{path}/queues/broker-a:0/messages", every)).status_code == 404
        assert (await mesh.ask("POST", f"{path}/messages", every, content=b"x")).status_code == 404
        assert (await mesh.ask("POST", f"{path}/messages", ROOT_KEY, content=b"x")).status_code == 403
        assert "test_AUDIT_TOPIC" not in (await mesh.ask("GET", "/v1/topics", every)).text


@contextlib.asynccontextmanager
async def running(mesh: GuardedMesh) -> AsyncIterator[None]:
    """The audit's writer at work."""
    task = asyncio.create_task(mesh.guard.audit.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_root_manages_and_never_sends_or_receives() -> None:
    """The key that can do everything with the cluster is of no use for messages."""
    assert ROOT_KID in ROOT_KEY
    async with guarded_mesh() as mesh:
        assert (await mesh.ask("PUT", "/v1/topics/fresh", ROOT_KEY, json={"queues": 2})).status_code == 201
        for method, path in (("POST", SEND), ("POST", "/v1/topics/orders/groups/billing/receive")):
            assert (await mesh.ask(method, path, ROOT_KEY, content=b"x")).json()["code"] == "forbidden"


async def test_a_path_that_nobody_declared_is_not_there() -> None:
    """Whatever the application may answer there, and 405 with the methods that there are."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("every", EVERYTHING)
        assert (await mesh.ask("GET", "/nothing", key)).json()["code"] == "route-not-found"
        refused = await mesh.ask("POST", "/v1/topics/orders", key)
        assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET, PATCH, PUT")
        assert (await mesh.ask("GET", "/nothing")).status_code == 401
