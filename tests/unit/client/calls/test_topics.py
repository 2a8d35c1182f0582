"""Topics and groups in the SDK: both clients ask the same, lists are read to their end, deletions may be repeated."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tern_client import Admin, BlockingAdmin
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import GroupNotFound, InvalidField, OutcomeUnknown, TopicNotFound
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy, refused, said

pytestmark = pytest.mark.anyio
QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
RETRY = {"policy": "exponential", "initial": "5s", "multiplier": 2, "max": "2h"}
# What is asked of an Admin, and what it says then: method, path, document.
CALLS: list[tuple[Callable[[Any], Any], str, str, dict[str, Any]]] = [
    (lambda admin: admin.create_topic("t"), "PUT", "/v1/topics/t", {}),
    (lambda admin: admin.create_topic("t", 4, type="FIFO"), "PUT", "/v1/topics/t", {"queues": 4, "type": "FIFO"}),
    (
        lambda admin: admin.alter_topic("t", permission="r", when_full="refuse", attributes={"a": None}),
        *("PATCH", "/v1/topics/t", {"permission": "r", "when_full": "refuse", "attributes": {"a": None}}),
    ),
    (
        lambda admin: admin.create_group("g", invisible_ms=5_000, start=7),
        "PUT",
        "/v1/groups/g",
        {"invisible": 5_000, "start": 7},
    ),
    (
        lambda admin: admin.alter_group("g", consume=False, fifo=True, max_attempts=3, retry=RETRY),
        *("PATCH", "/v1/groups/g", {"consume": False, "fifo": True, "max_attempts": 3, "retry": RETRY}),
    ),
]


@pytest.mark.parametrize(("call", "method", "path", "document"), CALLS)
async def test_both_admins_name_what_is_named_and_nothing_else(
    call: Callable[[Any], Any], method: str, path: str, document: dict[str, Any]
) -> None:
    """What is left out is left out on the wire: a declaration leaves it as it is."""
    async with ScriptedProxy(answer=lambda _: said({"said": True})) as proxy:
        async with Admin(proxy.url) as admin:
            assert await call(admin) == {"said": True}

        def blocking() -> None:
            with BlockingAdmin(proxy.url) as admin:
                assert call(admin) == {"said": True}

        await asyncio.to_thread(blocking)
        one, two = proxy.asked
        assert (one.method, one.path, one.document) == (two.method, two.path, two.document) == (method, path, document)


async def test_only_new_is_a_condition_and_is_not_repeated_blindly() -> None:
    """A repeat after a lost answer would meet the caller's own topic."""
    async with ScriptedProxy(HANG_UP, HANG_UP, said({})) as proxy, Admin(proxy.url, policy=QUICK) as admin:
        with pytest.raises(OutcomeUnknown):
            await admin.create_topic("t", only_new=True)
        await admin.create_group("g")
        first, second, third = proxy.asked
        assert first.headers["if-none-match"] == "*"
        assert "if-none-match" not in second.headers
        assert second.path == third.path


async def test_lists_are_read_page_by_page() -> None:
    """With the same filter and order on every page."""

    def answer(asked: Asked) -> Reply:
        page = 0 if "cursor=" not in asked.path else int(asked.path.rpartition("cursor=c")[2])
        return said({"groups": [{"group": f"g{page}"}], "next_cursor": "" if page == 2 else f"c{page + 1}"})

    async with ScriptedProxy(answer=answer) as proxy:
        async with Admin(proxy.url) as admin:
            rows = await admin.groups("a b", sort="-name")
        assert [row["group"] for row in rows] == ["g0", "g1", "g2"]
        assert all("q=a%20b&sort=-name" in asked.path for asked in proxy.asked)

        def blocking() -> list[dict[str, Any]]:
            with BlockingAdmin(proxy.url) as admin:
                return admin.groups("a b", sort="-name")

        assert await asyncio.to_thread(blocking) == rows


async def test_what_is_gone_already_may_be_deleted_where_that_is_fine() -> None:
    """Else it is an error."""

    def answer(asked: Asked) -> Reply:
        return refused(TopicNotFound(topic="t") if "/topics/" in asked.path else GroupNotFound(group="g"))

    async with ScriptedProxy(answer=answer) as proxy, Admin(proxy.url) as admin:
        await admin.delete_topic("t", missing_ok=True)
        await admin.delete_group("g", missing_ok=True)
        with pytest.raises(TopicNotFound):
            await admin.delete_topic("t")
        with pytest.raises(GroupNotFound):
            await admin.delete_group("g")
        assert proxy.asked[0].path == "/v1/topics/t?confirm=t"


def test_the_blocking_admin_has_every_call_of_the_other() -> None:
    """With the same parameters."""
    for name, call in inspect.getmembers(Admin, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            assert inspect.signature(call).parameters == inspect.signature(getattr(BlockingAdmin, name)).parameters, (
                name
            )


async def test_a_client_of_a_namespace_says_so_with_every_request() -> None:
    """Both clients; what is none is refused when the client is made, and without one nothing is said."""
    async with ScriptedProxy(answer=lambda _: said({"said": True})) as proxy:
        async with Admin(proxy.url, namespace="shop") as admin:
            await admin.create_topic("t")
            await admin.topic("t")

        def blocking() -> None:
            with BlockingAdmin(proxy.url, namespace="shop") as admin:
                admin.topic("t")
            with BlockingAdmin(proxy.url) as admin:
                admin.topic("t")

        await asyncio.to_thread(blocking)
        assert [asked.headers.get("mq-namespace") for asked in proxy.asked] == ["shop", "shop", "shop", None]
    for kind in (Admin, BlockingAdmin):
        with pytest.raises(InvalidField, match="namespace"):
            kind("http://127.0.0.1:1", namespace="a%b")
