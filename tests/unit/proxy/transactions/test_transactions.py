"""Begins of transactions at a proxy: one message or several, where they go, what is answered, and what a repeat finds."""

import asyncio

import msgspec
import pytest

from tern_remoting import Frame, Link
from tern_wire.errors import LinkReplyMalformed
from tern_wire.link.requests import RequestCode
from tern_wire.paths import MSGPACK
from tern_wire.records.read import decode_record
from tests.support.broker.contents import open_transactions
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh
from tests.support.proxy.transaction_requests import BEGIN, IDS, SEVERAL, begin, begin_several, code_of, declare, end

pytestmark = pytest.mark.anyio


def two_groups() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of two broker groups."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")


async def test_a_begun_message_is_stored_and_invisible_until_its_commit() -> None:
    """201 with id, times and links; the record has RocketMQ's properties; the commit says where the message is."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        answer = await begin(
            mesh, MQ_Tag="created", MQ_Key="order-7", MQ_Check_After="1500ms", content_type="text/plain"
        )
        assert answer.status_code == 201
        begun = answer.json()
        transaction = IDS.read(begun["transaction_id"])
        assert (transaction.broker_group, transaction.producer_group_id, transaction.principal) == ("broker-a", 1, 0)
        assert begun == {
            "transaction_id": begun["transaction_id"],
            "message_id": begun["message_id"],
            "topic": "orders",
            "producer_group": "shop",
            "state": "open",
            "born_at": NOW_MS,
            "check_at": NOW_MS + 1_500,
            "expires_at": NOW_MS + 1_500 + 15 * 30_000,
            "links": {verb: f"/v1/transactions/{begun['transaction_id']}/{verb}" for verb in ("commit", "rollback")},
        }
        assert answer.headers["location"] == f"/v1/transactions/{begun['transaction_id']}"
        assert mesh.broker.records("orders") == []
        (half,) = open_transactions(mesh.broker)[transaction.number].halves
        assert open_transactions(mesh.broker)[transaction.number].check_at_ms == NOW_MS + 1_500
        properties = decode_record(half[2]).properties
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "shop")
        assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "2", "whole seconds, never sooner"
        assert (properties["UNIQ_KEY"], properties["TAGS"], properties["KEYS"]) == (
            begun["message_id"],
            "created",
            "order-7",
        )
        committed = (await end(mesh, begun["transaction_id"], "commit")).json()
        assert committed == {
            "transaction_id": begun["transaction_id"],
            "state": "committed",
            "by": "client",
            "messages": 1,
            "topic": "orders",
            "queue": f"broker-a:{half[1]}",
            "offset": 0,
        }
        (message,) = (await mesh.receive()).json()["messages"]
        assert (message["message_id"], message["body"], message.get("properties")) == (
            begun["message_id"],
            "half",
            None,
        )


async def test_begins_spread_over_all_queues_and_travel_with_ordinary_sends() -> None:
    """Many begins use every queue; one that gathers with sends goes in their flight, under its own producer group."""
    async with proxy_mesh() as mesh:
        declare(mesh, "shop", "till")
        for _ in range(32):
            assert (await begin(mesh)).status_code == 201
        queues = {half[1] for one in open_transactions(mesh.broker).values() for half in one.halves}
        assert queues == {0, 1, 2, 3}
        before = len(mesh.broker.flights)
        mixed = await asyncio.gather(
            mesh.post("/v1/topics/orders/messages", b"plain"),
            begin(mesh, b"shop's"),
            begin(mesh, b"till's", MQ_Producer_Group="till"),
            mesh.post("/v1/topics/orders/messages", b"plain"),
        )
        assert {answer.status_code for answer in mixed} == {201}
        assert mesh.broker.flights[before:] == [4]
        assert len(mesh.broker.records("orders")) == 2
        groups = [IDS.read(answer.json()["transaction_id"]).producer_group_id for answer in mixed[1:3]]
        assert groups == [1, 2]


async def test_transactions_of_several_topics_share_a_flight() -> None:
    """Topics and producer groups are named once in a flight, whatever the order in which requests name them."""
    async with proxy_mesh(topics={"orders": 4, "bills": 2, "mails": 1}) as mesh:
        declare(mesh, "shop", "till")
        chains = (("bills", "orders"), ("mails", "bills", "orders"), ("orders", "mails"))
        before = len(mesh.broker.flights)
        answers = await asyncio.gather(
            mesh.post("/v1/topics/mails/messages", b"plain"),
            *(
                begin_several(mesh, *({"topic": name, "body": name} for name in chain), producer_group=group)
                for chain, group in zip(chains, ("shop", "till", "shop"), strict=True)
            ),
            mesh.post("/v1/topics/bills/messages", b"plain"),
        )
        assert {answer.status_code for answer in answers} == {201}
        assert mesh.broker.flights[before:] == [9]
        for answer, chain in zip(answers[1:4], chains, strict=True):
            found = open_transactions(mesh.broker)[IDS.read(answer.json()["transaction_id"]).number]
            assert found.producer_group == answer.json()["producer_group"]
            assert [(topic, decode_record(record).body.decode()) for topic, _, record in found.halves] == [
                (name, name) for name in chain
            ]


async def test_an_answer_without_the_producer_group_fails_the_begin_alone() -> None:
    """Without its id there is no transaction id to tell; a send in the same flight is stored and answered."""
    async with proxy_mesh() as mesh:
        declare(mesh)

        def answer_without(link: Link, frame: Frame) -> None:
            mesh.broker.serve_changed(link, frame, lambda head: {**head, "producer_groups": []})

        mesh.broker.script(RequestCode.SEND, answer_without)
        sent, begun = await asyncio.gather(mesh.post("/v1/topics/orders/messages", b"plain"), begin(mesh))
        assert (sent.status_code, mesh.broker.asked[RequestCode.SEND]) == (201, 1)
        assert begun.json()["code"] == LinkReplyMalformed.code


async def test_producer_group_and_time_may_be_query_parameters() -> None:
    """As everything of a send; they win over headers."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        answer = await mesh.post(f"{BEGIN}?producer_group=shop&check_after=10s&tag=T", b"x", MQ_Producer_Group="other")
        assert (answer.status_code, answer.json()["check_at"]) == (201, NOW_MS + 10_000)


async def test_several_messages_of_several_topics_are_one_transaction() -> None:
    """In the order of the request, ids too; commit shows all of them, and says where the first one is."""
    async with proxy_mesh(topics={"orders": 4, "bills": 2}) as mesh:
        declare(mesh)
        await mesh.send("bills")
        answer = await begin_several(
            mesh,
            {"topic": "orders", "json": {"n": 1}},
            {"topic": "bills", "body": "two", "keys": ["order-7"]},
            {"topic": "orders", "body_base64": "AAE=", "queue": "broker-a:3"},
            check_after="2s",
        )
        assert answer.status_code == 201
        begun = answer.json()
        assert begun.keys() == {
            *("transaction_id", "message_ids", "broker_group", "producer_group", "state", "born_at", "check_at"),
            *("expires_at", "links"),
        }
        assert begun["check_at"] == NOW_MS + 2_000
        found = open_transactions(mesh.broker)[IDS.read(begun["transaction_id"]).number]
        records = [decode_record(record) for _, _, record in found.halves]
        assert [record.topic for record in records] == ["orders", "bills", "orders"]
        assert [record.properties["UNIQ_KEY"] for record in records] == begun["message_ids"]
        assert (records[0].body, records[2].body, found.halves[2][1]) == (b'{"n":1}', b"\x00\x01", 3)
        committed = (await end(mesh, begun["transaction_id"], "commit")).json()
        assert (committed["messages"], committed["topic"]) == (3, "orders")
        assert (len(mesh.broker.records("orders")), len(mesh.broker.records("bills"))) == (2, 2)


async def test_several_messages_come_in_messagepack_too() -> None:
    """Bodies are binary there, and so is the answer if that is accepted."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        body = msgspec.msgpack.encode({"producer_group": "shop", "messages": [{"topic": "orders", "body": b"\xff"}]})
        answer = await mesh.post(SEVERAL, body, content_type=MSGPACK, accept=MSGPACK)
        assert answer.status_code == 201
        begun = msgspec.msgpack.decode(answer.content)
        (half,) = open_transactions(mesh.broker)[IDS.read(begun["transaction_id"]).number].halves
        assert decode_record(half[2]).body == b"\xff"


async def test_a_transaction_goes_to_a_broker_group_that_has_all_its_topics() -> None:
    """Where topics lie apart, the one that has them all; a pinned queue decides; 409 topics-apart when there is none."""
    async with proxy_mesh(*two_groups(), topics={"orders": 4, "bills": 2}) as mesh:
        declare(mesh)
        del mesh.brokers[0].topics["bills"]
        mesh.brokers[1].create_topic("late", 1)
        await mesh.proxy.cache.refresh()
        both = [{"topic": "orders", "body": "1"}, {"topic": "bills", "body": "2"}]
        for _ in range(8):
            assert (await begin_several(mesh, *both)).json()["broker_group"] == "broker-b"
        apart = await begin_several(mesh, {**both[0], "queue": "broker-a:1"}, both[1])
        assert code_of(apart) == (409, "topics-apart")
        assert "bills, orders" in apart.json()["detail"]
        pinned = await begin_several(mesh, {"topic": "orders", "body": "1", "queue": "broker-a:1"})
        assert pinned.json()["broker_group"] == "broker-a"
        chosen = {(await begin_several(mesh, both[0])).json()["broker_group"] for _ in range(16)}
        assert chosen == {"broker-a", "broker-b"}


async def test_a_broker_group_without_leader_or_permission_gets_no_new_transactions() -> None:
    """Others take them; where all are withdrawn, 503 says so."""
    async with proxy_mesh(*two_groups()) as mesh:
        declare(mesh)
        mesh.name_server.wiped = {"broker-a"}
        await mesh.proxy.cache.refresh()
        for _ in range(6):
            assert IDS.read((await begin(mesh)).json()["transaction_id"]).broker_group == "broker-b"
        mesh.name_server.wiped = {"broker-a", "broker-b"}
        await mesh.proxy.cache.refresh()
        assert code_of(await begin(mesh)) == (503, "broker-group-not-writable")


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY"])
async def test_other_topics_take_no_half_messages(kind: str) -> None:
    """400 with the way out; nothing is stored."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        await mesh.http.patch("/v1/topics/orders", json={"type": kind})
        refused = await begin(mesh)
        assert code_of(refused) == (400, "property-conflicts-with-type")
        several = await begin_several(mesh, {"topic": "orders", "body": "x"})
        assert (several.json()["code"], several.json()["topic_type"]) == ("property-conflicts-with-type", kind)
        assert open_transactions(mesh.broker) == {}


async def test_a_transaction_topic_takes_half_messages_only() -> None:
    """An ordinary send is refused, a begin is not."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        await mesh.http.patch("/v1/topics/orders", json={"type": "TRANSACTION"})
        assert (await begin(mesh)).status_code == 201
        assert code_of(await mesh.post("/v1/topics/orders/messages", b"x")) == (400, "property-conflicts-with-type")


async def test_a_topic_that_may_not_be_written_takes_none() -> None:
    """403, as for a send, and for several messages too."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        await mesh.http.patch("/v1/topics/orders", json={"permission": "r"})
        assert code_of(await begin(mesh)) == (403, "topic-not-writable")
        assert code_of(await begin_several(mesh, {"topic": "orders", "body": "x"})) == (403, "topic-not-writable")


# Repeats ----------------------------------------------------------------------------------------------------------
async def test_the_same_idempotency_key_is_the_same_transaction() -> None:
    """200 with the first receipt, at any proxy; another body under the key is 422; and so for several messages, whose key is the first's."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        first = await begin(mesh, Idempotency_Key="k", MQ_Check_After="9s")
        mesh.proxy.clock.ms += 5_000  # type: ignore[attr-defined]
        again = await begin(mesh, Idempotency_Key="k", MQ_Check_After="1s")
        assert (first.status_code, again.status_code) == (201, 200)
        assert (again.headers["idempotency-replayed"], again.json()) == ("true", first.json())
        exact = await begin(mesh, Idempotency_Key="e", MQ_Check_After="1500ms")
        assert (await begin(mesh, Idempotency_Key="e", MQ_Check_After="1500ms")).json() == exact.json()
        assert code_of(await begin(mesh, b"other", Idempotency_Key="k")) == (422, "idempotency-key-reused")
        messages = [{"topic": "orders", "body": "1"}, {"topic": "orders", "body": "2"}]
        several = await begin_several(mesh, *messages, headers={"Idempotency-Key": "s"})
        keyed = [{**messages[0], "idempotency_key": "s"}, messages[1]]
        repeated = await begin_several(mesh, *keyed)
        assert (several.status_code, repeated.status_code) == (201, 200)
        assert repeated.json()["transaction_id"] == several.json()["transaction_id"]
        assert repeated.json()["message_ids"][0] == several.json()["message_ids"][0]
        assert len(open_transactions(mesh.broker)) == 3


async def test_a_key_always_leads_to_the_same_broker_group() -> None:
    """Its key table knows whether it was there, for one message and for several."""
    async with proxy_mesh(*two_groups(), topics={"orders": 4, "bills": 2}) as mesh:
        declare(mesh)
        homes = set()
        for number in range(12):
            answers = [await begin(mesh, Idempotency_Key=f"k{number}") for _ in range(2)]
            assert [answer.status_code for answer in answers] == [201, 200]
            homes.add(IDS.read(answers[0].json()["transaction_id"]).broker_group)
            both = [{"topic": "orders", "body": "1"}, {"topic": "bills", "body": "2"}]
            several = [await begin_several(mesh, *both, headers={"Idempotency-Key": f"s{number}"}) for _ in range(2)]
            assert [answer.status_code for answer in several] == [201, 200]
        assert homes == {"broker-a", "broker-b"}


async def test_a_lost_answer_to_a_begin_is_an_open_outcome_unless_there_is_a_key() -> None:
    """504 without one, as for sends; with one it is repeated by the proxy, and there is one transaction."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        mesh.broker.script(RequestCode.SEND, lambda link, _: link.abort("scripted"))
        assert code_of(await begin(mesh)) == (504, "outcome-unknown")
        mesh.broker.script(RequestCode.SEND, lambda link, _: link.abort("scripted"))
        assert (await begin(mesh, Idempotency_Key="k")).status_code == 201
        assert len(open_transactions(mesh.broker)) == 1
