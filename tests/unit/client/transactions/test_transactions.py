"""Transactions in the SDK: what is asked of a proxy, what the local transaction decides, and what is left to the checker."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tern_client import (
    BegunTransaction,
    BlockingTransactionProducer,
    ClientClosed,
    Decision,
    HalfMessage,
    LocalTransactionFailed,
    RetryPolicy,
    TransactionProducer,
)
from tern_client.transactions.models import State, decision_of
from tern_client.transactions.transactions import begin_request
from tern_wire.errors import (
    BatchEmpty,
    IllegalGroup,
    MessageTooLarge,
    NoLeader,
    OutcomeUnknown,
    TooManyOpenTransactions,
    TransactionExpired,
    TransactionResolved,
    TransactionUnknown,
)
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.link.codec import decode_msgpack
from tern_wire.transactions import STATES
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
MESSAGE = HalfMessage(topic="t", body=b"hi", tag="A", keys=("k",))
BEGUN = {
    "transaction_id": "AQ-1",
    "message_id": "m",
    "topic": "t",
    "queue": "broker-a:1",
    "state": "open",
    "born_at": 5,
    "check_at": 6_005,
    "expires_at": 900_005,
    "links": {"commit": "/v1/transactions/AQ-1/commit", "rollback": "/v1/transactions/AQ-1/rollback"},
}
ENDED = {"transaction_id": "AQ-1", "state": "committed", "by": "client", "messages": 1, "topic": "t"}
ENDED = {**ENDED, "queue": "broker-a:1", "offset": 7}


def serve(asked: Asked) -> Reply:
    """A proxy at which everything works."""
    if asked.path.endswith("/commit"):
        return said(ENDED)
    if asked.path.endswith("/rollback"):
        return said({**ENDED, "state": "rolled-back", "queue": None, "offset": None})
    if asked.path == "/v1/transactions":
        return said({**{name: BEGUN[name] for name in ("transaction_id", "state")}, "message_ids": ["m0", "m1"]}, 201)
    return said(BEGUN, 201)


def verbs(proxy: ScriptedProxy) -> list[str]:
    """The last part of each path that was asked."""
    return [asked.path.rsplit("/", 1)[1] for asked in proxy.asked]


async def test_a_begin_says_who_and_when_and_has_a_key_of_its_own() -> None:
    """As a single send, with the producer group and the first check in headers; what it answers is told."""
    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        begun = await producer.begin(MESSAGE, check_after=timedelta(minutes=1))
        await producer.begin(MESSAGE, check_after="2s")
        ended = await producer.commit(begun.transaction_id)
        first, second, commit = proxy.asked
    assert begun == BegunTransaction(
        transaction_id="AQ-1",
        producer_group="shop",
        message_ids=("m",),
        state="open",
        check_at=6_005,
        expires_at=900_005,
    )
    assert (first.method, first.path, first.body) == ("POST", "/v1/topics/t/transactions", b"hi")
    assert (first.headers["mq-producer-group"], first.headers["mq-check-after"]) == ("shop", "60000")
    assert (first.headers["mq-tag"], first.headers["mq-key"]) == ("A", "k")
    assert second.headers["mq-check-after"] == "2s"
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
    assert (commit.method, commit.path, commit.body) == ("POST", "/v1/transactions/AQ-1/commit", b"")
    assert (ended.state, ended.by, ended.queue, ended.offset) == ("committed", "client", "broker-a:1", 7)


async def test_several_messages_are_one_request_and_one_key_stands_for_all() -> None:
    """Each with its topic; a single one that headers cannot carry travels the same way."""
    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        begun = await producer.begin([MESSAGE, HalfMessage(topic="u", body=b"\xff")], check_after="5s")
        await producer.begin(HalfMessage(topic="t", body=b"x", tag="ü"))
        several, odd = proxy.asked
    assert begun.message_ids == ("m0", "m1")
    assert several.path == odd.path == "/v1/transactions"
    document = several.document
    key = document["messages"][0].pop("idempotency_key")
    assert key
    assert document == {
        "producer_group": "shop",
        "check_after": "5s",
        "messages": [{"topic": "t", "body": b"hi", "tag": "A", "keys": ["k"]}, {"topic": "u", "body": b"\xff"}],
    }
    assert [message["tag"] for message in odd.document["messages"]] == ["ü"]


@pytest.mark.parametrize(
    ("answer", "asked", "state"),
    [
        (True, ["commit"], "committed"),
        ("commit", ["commit"], "committed"),
        (Decision.COMMIT, ["commit"], "committed"),
        (False, ["rollback"], "rolled-back"),
        ("rollback", ["rollback"], "rolled-back"),
        (None, [], "open"),
        ("unknown", [], "open"),
    ],
)
async def test_the_local_transaction_decides(answer: Any, asked: list[str], state: str) -> None:
    """A function or a coroutine function, in both shells; it is run once, after the half message is stored, and knows its id."""
    seen: list[str] = []

    def local(begun: BegunTransaction) -> Any:
        seen.append(begun.transaction_id)
        return answer

    async def local_async(begun: BegunTransaction) -> Any:
        await asyncio.sleep(0)
        return local(begun)

    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        for one in (local, local_async):
            sent = await producer.send(MESSAGE, one)
            assert (sent.state, sent.decision, sent.error) == (state, decision_of(answer), None)

        def blocking() -> None:
            with BlockingTransactionProducer(proxy.url, "shop") as other:
                assert other.send(MESSAGE, local).state == state

        await asyncio.to_thread(blocking)
    assert seen == ["AQ-1"] * 3
    assert verbs(proxy) == ["transactions", *asked] * 3


async def test_a_local_transaction_that_raises_leaves_it_open_and_says_so() -> None:
    """It may have taken effect: neither commit nor rollback is said, and the error has the id and the cause. In both shells."""
    trouble = OSError("the bank is closed")

    def local(_: BegunTransaction) -> bool:
        raise trouble

    async def local_async(begun: BegunTransaction) -> bool:
        return local(begun)

    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        for one in (local, local_async):
            with pytest.raises(LocalTransactionFailed, match="OSError: the bank is closed") as caught:
                await producer.send(MESSAGE, one)
            assert caught.value.__cause__ is trouble
            assert caught.value.fields["transaction_id"] == "AQ-1"

        def blocking() -> None:
            with BlockingTransactionProducer(proxy.url, "shop") as other:
                with pytest.raises(LocalTransactionFailed) as again:
                    other.send(MESSAGE, local)
                assert again.value.__cause__ is trouble

        await asyncio.to_thread(blocking)
    assert verbs(proxy) == ["transactions"] * 3


@pytest.mark.parametrize("answer", [1, 0, "yes", "", b"commit", object()])
async def test_what_is_no_outcome_is_not_guessed(answer: Any) -> None:
    """1 is not True: a row count that happens to be 1 must not commit."""
    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        with pytest.raises(LocalTransactionFailed, match="not a decision"):
            await producer.send(MESSAGE, lambda _: answer)
    assert verbs(proxy) == ["transactions"]


async def test_a_cancelled_local_transaction_stays_cancelled() -> None:
    """The task ends as any other; the transaction is left to the checker."""
    is_local = asyncio.Event()

    async def local(_: BegunTransaction) -> bool:
        is_local.set()
        await asyncio.get_running_loop().create_future()
        return True

    async with ScriptedProxy(answer=serve) as proxy, TransactionProducer(proxy.url, "shop") as producer:
        sending = asyncio.create_task(producer.send(MESSAGE, local))
        await is_local.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert verbs(proxy) == ["transactions"]


async def test_an_end_that_cannot_be_told_leaves_it_to_the_checker() -> None:
    """No leader until the deadline: the outcome says what was decided, that it is open, and why. In both shells."""
    later = NoLeader(broker_group="broker-a", retry_after_ms=RetryPolicy().deadline_ms)

    def answer(asked: Asked) -> Reply:
        return serve(asked) if asked.path.endswith("transactions") else refused(later)

    async with ScriptedProxy(answer=answer) as proxy:
        async with TransactionProducer(proxy.url, "shop") as producer:
            sent = await producer.send(MESSAGE, lambda _: True)
        assert (sent.decision, sent.state, type(sent.error)) == (Decision.COMMIT, "open", NoLeader)

        def blocking() -> None:
            with BlockingTransactionProducer(proxy.url, "shop") as other:
                again = other.send(MESSAGE, lambda _: False)
            assert (again.decision, again.state, type(again.error)) == (Decision.ROLLBACK, "open", NoLeader)

        await asyncio.to_thread(blocking)


@pytest.mark.parametrize(
    "error",
    [TransactionResolved(state="rolled-back"), TransactionExpired(), TransactionUnknown()],
    ids=lambda e: e.code,
)
async def test_an_end_that_can_never_hold_is_an_error(error: Any) -> None:
    """The local transaction was committed, and the messages never come: nobody may take that for a success."""
    proxy = ScriptedProxy(said(BEGUN, 201), refused(error))
    async with proxy, TransactionProducer(proxy.url, "shop", policy=QUICK) as producer:
        with pytest.raises(type(error)):
            await producer.send(MESSAGE, lambda _: True)
    assert len(proxy.asked) == 2


async def test_a_begin_that_may_be_stored_is_repeated_with_its_key_and_nothing_local_runs_before_it_is() -> None:
    """The connection is lost, then there is no room; the third attempt finds what the first has stored."""
    runs: list[bool] = []

    def local(begun: BegunTransaction) -> bool:
        runs.append(begun.replayed)
        return True

    script = (HANG_UP, refused(TooManyOpenTransactions(producer_group="shop")), said(BEGUN, 200))
    proxy = ScriptedProxy(*script, answer=serve)
    async with proxy, TransactionProducer(proxy.url, "shop", policy=QUICK) as producer:
        sent = await producer.send(MESSAGE, local)
    assert (sent.state, sent.begun.replayed, runs) == ("committed", True, [True])
    assert len({asked.headers["idempotency-key"] for asked in proxy.asked[:3]}) == 1

    proxy = ScriptedProxy(HANG_UP)
    async with proxy, TransactionProducer(proxy.url, "shop", idempotent=False, policy=QUICK) as producer:
        with pytest.raises(OutcomeUnknown):
            await producer.send(MESSAGE, lambda _: pytest.fail("nothing is stored for certain"))
    assert len(proxy.asked) == 1


async def test_an_end_whose_answer_is_lost_is_said_again() -> None:
    """Saying the same twice is harmless."""
    proxy = ScriptedProxy(HANG_UP, refused(NoLeader(broker_group="broker-a")), answer=serve)
    async with proxy, TransactionProducer(proxy.url, "shop", policy=QUICK) as producer:
        assert (await producer.rollback("AQ-1")).state == "rolled-back"
    assert verbs(proxy) == ["rollback"] * 3


async def test_what_no_proxy_would_take_is_refused_here() -> None:
    """Without a request: no message, a body over the limit, a name that is none; and anything after close."""
    async with ScriptedProxy(answer=serve) as proxy:
        producer = TransactionProducer(proxy.url, "shop")
        with pytest.raises(BatchEmpty):
            await producer.begin([])
        with pytest.raises(MessageTooLarge):
            await producer.begin([MESSAGE, HalfMessage(topic="t", body=bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1))])
        with pytest.raises(IllegalGroup):
            TransactionProducer(proxy.url, "no group")
        await producer.close()
        closed: list[Callable[[], Awaitable[Any]]] = [
            lambda: producer.begin(MESSAGE),
            lambda: producer.send(MESSAGE, lambda _: True),
            lambda: producer.commit("AQ-1"),
            lambda: producer.transaction("AQ-1"),
        ]
        for use in closed:
            with pytest.raises(ClientClosed):
                await use()
        other = BlockingTransactionProducer(proxy.url, "shop")
        other.close()
        with pytest.raises(ClientClosed):
            other.begin(MESSAGE)
    assert proxy.asked == []


def test_the_states_are_those_of_the_wire_and_the_client_starts_without_numpy() -> None:
    """The texts are written twice, since importing numpy would cost every command line 0.2 s."""
    assert tuple(State) == STATES
    code = "import sys, tern_client, tern_cli.app; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_begin_is_repeatable_only_with_a_key() -> None:
    """The first message's; without one a repeat could store it twice."""
    keyed = HalfMessage(topic="t", body=b"x", idempotency_key="once")
    assert begin_request("g", [keyed]).repeatable
    assert begin_request("g", [keyed, MESSAGE]).repeatable
    assert not begin_request("g", [MESSAGE]).repeatable
    assert not begin_request("g", [MESSAGE, keyed]).repeatable
    assert decode_msgpack(begin_request("g", [keyed, MESSAGE]).body)["messages"][0]["idempotency_key"] == "once"
