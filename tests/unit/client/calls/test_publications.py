"""Publications in the SDK: what requests carry, and what answers become."""

import json

import msgspec
import pytest

from tern_client import BlockingAdmin, OutgoingMessage, RetryPolicy
from tern_wire.errors import OutcomeUnknown, StageUnknown
from tests.support.client.scripted_proxy import blocking_proxy, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)


def test_a_batch_is_staged_published_listed_and_given_up() -> None:
    """With the numbers in the path, and the announced stages in the body."""
    answers = iter(
        [
            said({"rows": 2, "replayed": False}),
            said({"batch": 7, "rows": 2}),
            said({"publications": [{"query": "q.1"}]}),
            said({"query": "q.1", "staged": []}),
            said({"stages": 0, "rows": 0}),
        ]
    )
    with blocking_proxy(lambda _: next(answers)) as made, BlockingAdmin(made.url) as admin:
        messages = [OutgoingMessage(body=b"a", tag="t"), OutgoingMessage(body=b"b")]
        assert admin.stage("orders", "q.1", 7, messages, partition=1, attempt=2, chunk=3)["rows"] == 2
        assert admin.publish("q.1", 7, [(1, 2, 2)], topics=["orders"], is_final=True)["batch"] == 7
        assert admin.publications() == [{"query": "q.1"}]
        assert admin.publication("q.1")["staged"] == []
        assert admin.abandon_batch("q.1", 8)["stages"] == 0
    assert [f"{asked.method} {asked.path}" for asked in made.asked] == [
        "PUT /v1/topics/orders/staged/q.1/7/1/2/3",
        "POST /v1/publications/q.1/batches/7",
        "GET /v1/publications",
        "GET /v1/publications/q.1",
        "DELETE /v1/publications/q.1/batches/8",
    ]
    staged = msgspec.msgpack.decode(made.asked[0].body)["messages"]
    assert [message["body"] for message in staged] == [b"a", b"b"]
    assert json.loads(made.asked[1].body) == {
        "stages": [{"partition": 1, "attempt": 2, "rows": 2}],
        "topics": ["orders"],
        "final": True,
    }


def test_a_publication_is_asked_for_again_until_it_is_refused_for_good() -> None:
    """It may be repeated, whatever came of it."""
    answers = iter([refused(OutcomeUnknown()), said({"batch": 7, "rows": 2})])
    with blocking_proxy(lambda _: next(answers)) as made, BlockingAdmin(made.url, policy=QUICK) as admin:
        assert admin.publish("q", 7, [(0, 0, 2)])["rows"] == 2
    assert len(made.asked) == 2
    unknown = StageUnknown(query="q", batch=7, partition=0, attempt=0, actual=0, expected=2)
    with (
        blocking_proxy(lambda _: refused(unknown)) as made,
        BlockingAdmin(made.url) as admin,
        pytest.raises(StageUnknown),
    ):
        admin.publish("q", 7, [(0, 0, 2)])
