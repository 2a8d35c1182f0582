"""Transactions that have begun, and producer groups, as both shells ask for them: documents, lists, ends by hand, settings."""

import asyncio
from datetime import timedelta

import pytest

from tern_client import Admin, BlockingAdmin, Decision, TransactionProducer
from tern_wire.errors import ProducerGroupBusy, ProducerGroupNotFound
from tests.support.client.scripted_proxy import ScriptedProxy, refused, said

ENDED = {"transaction_id": "AQ-1", "state": "committed", "by": "hand", "messages": 1, "topic": "t"}
ENDED = {**ENDED, "queue": "broker-a:1", "offset": 7}
DOCUMENT = {
    "transaction_id": "AQ/1",
    "producer_group": "shop",
    "state": "expired",
    "begun_at": 5,
    "check_at": None,
    "attempts": 2,
    "message_count": 1,
    "messages": [{"topic": "t", "queue": "broker-a:1", "size": 9, "later": 1}],
    "checks": [{"attempt": 1, "at": 6_005, "checker": "c-1", "answer": "http-503", "latency_ms": 12}],
    "of_a_later_release": True,
}


async def test_transactions_are_shown_and_listed_by_both_shells() -> None:
    """Ids are quoted, conditions travel as they are, and fields of later releases are passed over."""
    replies = [said(DOCUMENT), said({"transactions": [DOCUMENT], "next_cursor": "c c"}), said({"transactions": []})]
    async with ScriptedProxy(*replies) as one, ScriptedProxy(*replies) as two:
        async with TransactionProducer(one.url, "shop") as producer:
            found = await producer.transaction("AQ/1")
            page = await producer.transactions(producer_group="shop", state="expired", older_than="5m", limit=1)
            assert (await producer.transactions(cursor=page.next_cursor)).transactions == ()

        def blocking() -> None:
            with BlockingAdmin(two.url) as other:
                assert other.transaction("AQ/1") == found
                assert (
                    other.transactions(producer_group="shop", state="expired", older_than=timedelta(minutes=5), limit=1)
                    == page
                )
                other.transactions(cursor=page.next_cursor)

        await asyncio.to_thread(blocking)
        paths = [[asked.path for asked in proxy.asked] for proxy in (one, two)]
    assert (found.state, found.check_at, found.attempts, found.begun_at) == ("expired", 0, 2, 5)
    assert (found.messages[0].offset, found.checks[0].answer) == (-1, "http-503")
    assert page.transactions == (found,)
    listed = "/v1/transactions?producer_group=shop&state=expired&older_than={}&limit=1"
    assert paths[0] == ["/v1/transactions/AQ%2F1", listed.format("5m"), "/v1/transactions?limit=100&cursor=c%20c"]
    assert paths[1] == ["/v1/transactions/AQ%2F1", listed.format("300000"), "/v1/transactions?limit=100&cursor=c%20c"]


async def test_producer_groups_and_resolving_by_hand_are_asked_alike_by_both_admins() -> None:
    """Only what is named travels; lists go on to their end; what is missing may be."""
    row = {"producer_group": "shop", "stats": {"open": 1}}
    replies = [
        said({**row, "created": True, "check_secret": "whsec_x"}, 201),
        said(row),
        said({"producer_groups": [row], "next_cursor": "n"}),
        said({"producer_groups": [row], "next_cursor": ""}),
        said(ENDED),
        refused(ProducerGroupBusy(producer_group="shop", open=1, expired=0)),
        refused(ProducerGroupNotFound(producer_group="shop")),
    ]
    async with ScriptedProxy(*replies) as one, ScriptedProxy(*replies) as two:
        async with Admin(one.url) as admin:
            made = await admin.create_producer_group(
                "shop", check_url="", check_after=timedelta(seconds=2), check_interval="2s", max_checks=None
            )
            assert made["check_secret"] == "whsec_x"
            assert await admin.producer_group("shop") == row
            assert await admin.producer_groups() == [row, row]
            assert (await admin.resolve("AQ-1", Decision.COMMIT, "seen at the bank")).by == "hand"
            with pytest.raises(ProducerGroupBusy):
                await admin.delete_producer_group("shop", missing_ok=True)
            await admin.delete_producer_group("shop", missing_ok=True)

        def blocking() -> None:
            with BlockingAdmin(two.url) as admin:
                admin.create_producer_group("shop", check_url="", check_after=2_000, check_interval="2s")
                assert admin.producer_group("shop") == row
                assert admin.producer_groups() == [row, row]
                assert admin.resolve("AQ-1", Decision.COMMIT, "seen at the bank").by == "hand"
                with pytest.raises(ProducerGroupBusy):
                    admin.delete_producer_group("shop")
                admin.delete_producer_group("shop", missing_ok=True)

        await asyncio.to_thread(blocking)
        told = [[(asked.method, asked.path, asked.body) for asked in proxy.asked] for proxy in (one, two)]
    assert told[0] == told[1]
    assert one.asked[0].document == {"check_url": "", "check_after": 2_000, "check_interval": "2s"}
    assert one.asked[4].document == {"outcome": "commit", "reason": "seen at the bank"}
    assert [asked.path for asked in one.asked[2:4]] == [
        "/v1/producer-groups?limit=1000",
        "/v1/producer-groups?limit=1000&cursor=n",
    ]
