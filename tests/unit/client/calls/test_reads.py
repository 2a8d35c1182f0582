"""Planned reads in the SDK: what requests carry, and what answers become."""

import json

import pytest

from tern_client import BlockingAdmin, RetryPolicy
from tern_wire.errors import OutcomeUnknown, ReadLeaseBroken
from tests.support.client.scripted_proxy import Reply, blocking_proxy, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
RANGES = {"topic": "orders", "begin": {"broker-a:3": 17}}


def test_a_plan_is_one_request() -> None:
    """With what is to be measured."""
    planned = said({"topics": [], "is_complete": True, "size_bytes": 0})
    with blocking_proxy(lambda _: planned) as made, BlockingAdmin(made.url) as admin:
        assert admin.plan_read([RANGES], sizes=True, step_bytes=4_096)["is_complete"]
    (asked,) = made.asked
    assert (asked.method, asked.path) == ("POST", "/v1/reads/plan")
    assert json.loads(asked.body) == {"topics": [RANGES], "sizes": True, "step_bytes": 4_096}


def test_a_lease_is_taken_renewed_listed_and_ended() -> None:
    """By the name that the answer gives."""
    answers = iter(
        [
            said({"lease": "5b1f.broker-a", "leased_until": 7, "taken_at": 1, "topics": []}, 201),
            said({"lease": "5b1f.broker-a", "leased_until": 9, "taken_at": 1, "topics": []}),
            said({"leases": [{"lease": "5b1f.broker-a"}]}),
            Reply(status=204, body=b"", headers={}),
        ]
    )
    with blocking_proxy(lambda _: next(answers)) as made, BlockingAdmin(made.url) as admin:
        lease = admin.take_read_lease([RANGES], "10m")["lease"]
        assert admin.renew_read_lease(lease, 60_000)["leased_until"] == 9
        assert admin.read_leases() == [{"lease": lease}]
        admin.end_read_lease(lease)
    took, renewed, listed, ended = made.asked
    assert (took.method, took.path, json.loads(took.body)) == (
        "POST",
        "/v1/read-leases",
        {"topics": [RANGES], "for": "10m"},
    )
    one = "/v1/read-leases/5b1f.broker-a"
    assert (renewed.method, renewed.path, json.loads(renewed.body)) == ("PUT", one, {"for": 60_000})
    assert [(each.method, each.path) for each in (listed, ended)] == [("GET", "/v1/read-leases"), ("DELETE", one)]


def test_a_broken_lease_is_an_error_with_its_reason() -> None:
    """And an end whose outcome is unknown is not repeated: it would be refused."""
    broken = ReadLeaseBroken(lease="5b1f.broker-a", reason="topic 'orders' was deleted")
    answers = iter([refused(broken), refused(OutcomeUnknown())])
    with blocking_proxy(lambda _: next(answers)) as made, BlockingAdmin(made.url, policy=QUICK) as admin:
        with pytest.raises(ReadLeaseBroken, match="topic 'orders' was deleted"):
            admin.renew_read_lease("5b1f.broker-a")
        with pytest.raises(OutcomeUnknown):
            admin.end_read_lease("5b1f.broker-a")
    assert len(made.asked) == 2
