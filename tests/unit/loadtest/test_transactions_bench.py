"""The bench of transactions: its producer answers and counts, its requests are begins of every producer group in turn, and each figure has its bar."""

import itertools
import json
import random

import pytest

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import BARS, Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.transactions.answering import Answering
from loadtest.bench.transactions.begins import begins, pull_checks

pytestmark = pytest.mark.anyio


async def test_the_producer_commits_whatever_it_is_asked_and_counts() -> None:
    """Several on one connection, and over several."""
    producer = Answering()
    async with producer.serving() as url:
        port = int(url.split(":")[2].split("/")[0])
        connections = [await HttpConnection.open("127.0.0.1", port) for _ in range(2)]
        for connection in (*connections, *connections):
            asked = b"MQ-Check-Nonce: n\r\nwebhook-id: id\r\n"
            assert await connection.request("POST", "/checks", asked, b"{}") == (200, b'{"state": "commit"}')
        await producer.until(4, within_s=30)
        with pytest.raises(TimeoutError):
            await producer.until(5, within_s=0.01)
        for connection in connections:
            connection.close()
    assert producer.count == 4
    assert 0 < producer.first_s <= producer.last_s


def test_begins_go_to_the_producer_groups_in_turn() -> None:
    """Without end, each with its headers."""
    requests = list(itertools.islice(begins(["a", "b"], random.Random(1), 10, **{"MQ-Check-After": "1h"}), 4))
    assert [b"MQ-Producer-Group: a" in request.headers for request in requests] == [True, False, True, False]
    assert all(b"MQ-Check-After: 1h" in request.headers and len(request.body) == 10 for request in requests)


class Polled:
    """A connection whose polls get the same check for ever."""

    async def request(self, *_: object) -> tuple[int, bytes]:
        """One check."""
        return 200, json.dumps({"checks": [{"transaction_id": "one"}]}).encode()


async def test_a_check_that_is_handed_out_twice_ends_the_bench() -> None:
    """Its figure would count nothing."""
    step = pull_checks(itertools.cycle(["a"]), set(), 2)
    assert await step(Polled()) == 1  # type: ignore[arg-type]
    with pytest.raises(BenchFailed, match="twice"):
        await step(Polled())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figure", "value", "more", "holds"),
    [
        ("transaction_single_64", 1, {"pairwise_ratio": 0.4}, True),
        ("transaction_single_64", 1, {"pairwise_ratio": 0.39}, False),
        ("callbacks_local", 249, {}, False),
        ("checks_pulled", 2_000, {}, True),
        ("open_100000_memory", 101, {}, False),
        ("open_100000_list", 50, {}, True),
        ("open_100000_restart", 10.1, {}, False),
    ],
)
def test_figures_are_held_against_their_bars(figure: str, value: float, more: dict[str, float], holds: bool) -> None:
    """Each has one."""
    assert any(name == figure for name, _ in BARS)
    assert Figure(bench="transactions", figure=figure, value=value, unit="", more=more).holds is holds
