"""Answers to checks that a producer receives by pull, in the background."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tern_client import (
    BlockingTransactionProducer,
    Check,
    CheckCounts,
    CheckedMessage,
    HalfMessage,
    RetryPolicy,
    TransactionProducer,
)
from tern_client.transactions.checking import FIRST_PAUSE_MS, PAUSE_MAX_MS, CheckPolls
from tern_client.transactions.models import AsyncChecker
from tern_wire.errors import ProducerGroupNotFound, TransactionResolved
from tests.support.client.scripted_proxy import SILENT, Asked, Reply, ScriptedProxy, packed, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
DEADLINE_S = 30.0


def question(name: str, attempt: int = 1) -> dict[str, Any]:
    """A check as the API hands it out."""
    message = {"topic": "t", "message_id": "m", "keys": ["k"], "tag": "A", "properties": {"p": "1"}, "body": b"\xff"}
    return {
        "transaction_id": name,
        "attempt": attempt,
        "producer_group": "shop",
        "begun_at": 5,
        "answer_by": 10_005,
        "messages": [message],
    }


class Asking:
    """A proxy that hands out *rounds* of checks, one a poll, and then none until the caller goes; it takes every answer."""

    def __init__(self, *rounds: list[dict[str, Any]] | Reply) -> None:
        self.rounds = list(rounds)
        self.told: list[str] = []
        self.polls: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Reply:
        if not asked.path.endswith("/checks/receive"):
            self.told.append(asked.path.removeprefix("/v1/transactions/"))
            return said({"transaction_id": "x", "state": "committed", "by": "check"})
        assert asked.path == "/v1/producer-groups/shop/checks/receive"
        assert asked.headers["accept"] == "application/vnd.msgpack"
        self.polls.append(asked.document)
        if not self.rounds:
            return SILENT
        following = self.rounds.pop(0)
        return following if isinstance(following, Reply) else packed({"checks": following})


async def until(check: Callable[[], Any], what: str) -> None:
    """Poll *check* until it is true; AssertionError at the deadline."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline_s, f"not in {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def answering(asking: Asking, checker: AsyncChecker, **options: Any) -> AsyncIterator[TransactionProducer]:
    """A producer that answers checks at a proxy of *asking*."""
    async with (
        ScriptedProxy(answer=asking) as proxy,
        TransactionProducer(proxy.url, "shop", checker=checker, policy=QUICK, **options) as producer,
    ):
        yield producer


async def test_checks_are_answered_as_the_checker_says() -> None:
    """Commit and rollback are told, unknown is not; the checker sees the whole message."""
    seen: list[Check] = []

    def checker(check: Check) -> bool | None:
        seen.append(check)
        return {"yes": True, "no": False, "who knows": None}[check.transaction_id]

    asking = Asking([question("yes", 2), question("no")], [question("who knows")])
    async with answering(asking, checker) as producer:
        await until(lambda: len(asking.polls) == 3, "all rounds are over")
        await until(lambda: producer.checks == CheckCounts(committed=1, rolled_back=1, unknown=1), "all counted")
    assert sorted(asking.told) == ["no/rollback", "yes/commit"]
    message = CheckedMessage(topic="t", message_id="m", body=b"\xff", tag="A", keys=("k",), properties={"p": "1"})
    assert seen[0] == Check(
        transaction_id="yes", producer_group="shop", attempt=2, begun_at=5, answer_by=10_005, messages=(message,)
    )
    assert asking.polls[0] == {"max_messages": 16, "wait": 20_000}


async def test_a_checker_may_wait_and_only_so_many_are_in_hand() -> None:
    """Two at a time: the third is asked for only when one is done, and a poll never asks for more than there is room for."""
    gates = {name: asyncio.Event() for name in ("a", "b", "c")}

    async def checker(check: Check) -> str:
        await gates[check.transaction_id].wait()
        return "commit"

    asking = Asking([question("a"), question("b")], [question("c")])
    async with answering(asking, checker, checks_in_hand_max=2):
        await until(lambda: len(asking.polls) == 1, "the first poll")
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(asking.polls) == 1
        gates["b"].set()
        await until(lambda: asking.told == ["b/commit"] and len(asking.polls) == 2, "the second poll")
        assert [poll["max_messages"] for poll in asking.polls] == [2, 1]
        gates["a"].set()
        gates["c"].set()
        await until(lambda: len(asking.told) == 3, "all answers")


async def test_a_check_that_takes_long_is_not_answered_twice_at_a_time() -> None:
    """Its claim runs out and it is handed out again, to the same producer: the one in hand is enough."""
    gate, asked_for = asyncio.Event(), []

    async def checker(check: Check) -> bool:
        asked_for.append(check.transaction_id)
        await gate.wait()
        return True

    asking = Asking([question("slow")], [question("slow", 2), question("other")])
    async with answering(asking, checker):
        await until(lambda: len(asked_for) == 2, "the other is asked for")
        gate.set()
        await until(lambda: len(asking.told) == 2, "both are told")
    assert asked_for == ["slow", "other"]


async def test_a_checker_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It raises, or says what is no outcome: nothing is told, somebody can read why, and the next check is answered."""

    def checker(check: Check) -> Any:
        if check.transaction_id == "bad":
            raise RuntimeError("no database")
        return 1 if check.transaction_id == "odd" else True

    asking = Asking([question("bad"), question("odd")], [question("good")])
    async with answering(asking, checker) as producer:
        await until(lambda: producer.checks == CheckCounts(committed=1, failed=2), "one told, two failed")
    assert asking.told == ["good/commit"]
    assert "bad, attempt 1" in caplog.text
    assert "no database" in caplog.text


async def test_asking_goes_on_after_errors() -> None:
    """A group that does not exist yet, and an answer that is refused: counted, and the next one works."""
    asking = Asking(refused(ProducerGroupNotFound(producer_group="shop")), [question("late")], [question("good")])

    def answer(asked: Asked) -> Reply:
        return refused(TransactionResolved(state="rolled-back")) if "/late/" in asked.path else asking(asked)

    proxy = ScriptedProxy(answer=answer)
    async with proxy, TransactionProducer(proxy.url, "shop", checker=lambda _: True, policy=QUICK) as producer:
        await until(lambda: producer.checks == CheckCounts(committed=1, failed=1), "both are counted")
    assert asking.told == ["good/commit"]


def test_pauses_grow_to_a_bound_and_begin_anew() -> None:
    """Chance takes at most half of each away."""
    polls = CheckPolls()
    assert [polls.pause_ms(1.0) for _ in range(3)] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert max(polls.pause_ms(0.999) for _ in range(100)) <= PAUSE_MAX_MS
    assert polls.pause_ms(0.0) == PAUSE_MAX_MS / 2
    polls.take([])
    assert polls.pause_ms(1.0) == FIRST_PAUSE_MS
    with pytest.raises(ValueError, match="at least 1"):
        CheckPolls(0)


async def test_closing_ends_the_poll_and_waits_for_answers_in_hand() -> None:
    """The long poll of 20 s is cut short; an answer that is being made is told."""
    gate, asked_for = asyncio.Event(), asyncio.Event()

    async def checker(_: Check) -> bool:
        asked_for.set()
        await gate.wait()
        return True

    asking = Asking([question("a")])
    async with answering(asking, checker) as producer:
        await asked_for.wait()
        closing = asyncio.create_task(producer.close())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await asyncio.wait_for(closing, DEADLINE_S)
        assert asking.told == ["a/commit"]


async def test_without_async_with_checks_are_answered_from_the_first_begin() -> None:
    """And not at all when there is no checker."""
    asking = Asking([question("a")])
    begun = {"transaction_id": "x", "message_id": "m", "state": "open"}

    def answer(asked: Asked) -> Reply:
        return said(begun, 201) if asked.path.endswith("/t/transactions") else asking(asked)

    async with ScriptedProxy(answer=answer) as proxy:
        silent = TransactionProducer(proxy.url, "shop")
        await silent.begin(HalfMessage(topic="t", body=b""))
        producer = TransactionProducer(proxy.url, "shop", checker=lambda _: False)
        assert asking.polls == []
        await producer.begin(HalfMessage(topic="t", body=b""))
        await until(lambda: asking.told == ["a/rollback"], "the check is answered")
        await producer.close()
        await silent.close()


async def test_the_blocking_producer_answers_from_threads() -> None:
    """As the async one: bounded, without answering the same twice, past failures, and it ends with `close`."""
    gate = threading.Event()
    running: list[str] = []

    def checker(check: Check) -> Any:
        running.append(check.transaction_id)
        if check.transaction_id == "bad":
            raise RuntimeError("no database")
        gate.wait(DEADLINE_S)
        return {"a": True, "b": "rollback", "c": None}[check.transaction_id]

    empty: list[dict[str, Any]] = []
    missing = refused(ProducerGroupNotFound(producer_group="shop"))
    asking = Asking(missing, [question("bad")], [question("a"), question("b")], [question("c")])

    def answer(asked: Asked) -> Reply:
        # What waits for checks is answered at once here: a thread cannot be called back.
        reply = asking(asked)
        return packed({"checks": empty}) if reply is SILENT else reply

    def blocking(url: str) -> CheckCounts:
        with BlockingTransactionProducer(url, "shop", checker=checker, checks_in_hand_max=2, policy=QUICK) as producer:
            deadline_s = time.monotonic() + DEADLINE_S
            while set(running) < {"bad", "a", "b"}:
                assert time.monotonic() < deadline_s, running
                time.sleep(0.002)
            gate.set()
            while sum((producer.checks.committed, producer.checks.rolled_back, producer.checks.unknown)) < 3:
                assert time.monotonic() < deadline_s, producer.checks
                time.sleep(0.002)
        assert not any(thread.name.startswith("check") for thread in threading.enumerate())
        return producer.checks

    async with ScriptedProxy(answer=answer) as proxy:
        counts = await asyncio.to_thread(blocking, proxy.url)
    assert counts == CheckCounts(committed=1, rolled_back=1, unknown=1, failed=1)
    assert sorted(asking.told) == ["a/commit", "b/rollback"]
    assert max(poll["max_messages"] for poll in asking.polls) == 2
    assert asking.polls[0]["wait"] == 2_000
