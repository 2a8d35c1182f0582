"""Producer groups at a proxy: declared in every broker group, secrets shown once, URLs held against the operator's list."""

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import pytest

from tern_proxy.config import ProxySettings
from tern_wire.checks.urls import CheckHosts
from tern_wire.errors import Overloaded
from tern_wire.link.requests import RequestCode
from tests.support.broker.contents import delete_producers, expire_transactions, open_transactions, producer_groups
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import begin, code_of, declare, end

pytestmark = pytest.mark.anyio
SHOP, ALL = "/v1/producer-groups/shop", "/v1/producer-groups"
HOSTS = CheckHosts.parse("127.0.0.1,hooks.example.com")
URL = "http://127.0.0.1:9000/checks"
NONE = {"open": 0, "expired": 0, "committed": 0, "rolled_back": 0, "checks": 0}
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


def two_groups() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of two broker groups."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")


async def put(mesh: ProxyMesh, **fields: Any) -> httpx.Response:
    """Declare producer group shop."""
    return await mesh.http.put(SHOP, json=fields)


async def test_a_producer_group_is_declared_in_every_broker_group() -> None:
    """201 when it is new, 200 afterwards; what is left out stays; times are written as people write them."""
    async with proxy_mesh(*two_groups()) as mesh:
        created = await put(mesh)
        assert (created.status_code, created.json()) == (
            201,
            {
                "producer_group": "shop",
                "check_url": "",
                "timeout_ms": 3_000,
                "max_checks": 15,
                "check_after_ms": 6_000,
                "check_interval_ms": 30_000,
                "include_body": False,
                "has_secret": False,
                "created": True,
                "stats": NONE,
            },
        )
        changed = await put(
            mesh, timeout="5s", max_checks=3, check_after="1m", check_interval=10_000, include_body=True
        )
        assert (changed.status_code, changed.json()["created"], changed.json()["timeout_ms"]) == (200, False, 5_000)
        shown = (await mesh.http.get(SHOP)).json()
        assert (shown["max_checks"], shown["check_after_ms"], shown["check_interval_ms"]) == (3, 60_000, 10_000)
        assert shown["include_body"] is True
        for broker in mesh.brokers:
            assert producer_groups(broker)["shop"].settings.max_checks == 3


async def test_a_secret_is_made_shown_once_and_kept() -> None:
    """24 bytes of Standard Webhooks, the same in all broker groups; another URL keeps it; no other answer and no log has it."""
    async with proxy_mesh(*two_groups(), check_hosts=HOSTS) as mesh:
        made = (await put(mesh, check_url=URL)).json()
        secret = made["check_secret"]
        assert secret.startswith("whsec_")
        assert len(b64decode(secret.removeprefix("whsec_"))) == 24
        assert made["has_secret"] is True
        assert {producer_groups(broker)["shop"].settings.check_secret for broker in mesh.brokers} == {secret}
        moved = await put(mesh, check_url="https://hooks.example.com/checks")
        assert "check_secret" not in moved.json()
        assert {producer_groups(broker)["shop"].settings.check_secret for broker in mesh.brokers} == {secret}
        given = await put(mesh, check_secret=SECRET)
        assert given.json()["check_secret"] == SECRET
        for answer in (moved, await put(mesh, max_checks=4), await mesh.http.get(SHOP), await mesh.http.get(ALL)):
            assert secret not in answer.text
            assert SECRET not in answer.text
        other = (await mesh.http.put(f"{ALL}/till", json={"check_url": URL})).json()
        assert other["check_secret"] != secret


async def test_a_secret_that_one_broker_group_lacks_is_given_to_it() -> None:
    """A broker group that joined later gets the one that the others have."""
    async with proxy_mesh(*two_groups(), check_hosts=HOSTS) as mesh:
        secret = (await put(mesh, check_url=URL)).json()["check_secret"]
        delete_producers(mesh.brokers[0], "shop")
        again = (await put(mesh, check_url=URL)).json()
        assert "check_secret" not in again
        assert {producer_groups(broker)["shop"].settings.check_secret for broker in mesh.brokers} == {secret}


async def test_two_changes_at_once_are_one_of_them_everywhere() -> None:
    """Secrets and URLs alike; a broker group that is new is told of what there was before it decides."""
    async with proxy_mesh(*two_groups(), check_hosts=HOSTS) as mesh:
        for number in range(5):
            urls = [f"{URL}/{number}/{one}" for one in range(4)]
            answers = await asyncio.gather(
                *(put(mesh, check_url=url, max_checks=one + 1) for one, url in enumerate(urls))
            )
            assert {answer.status_code for answer in answers} <= {200, 201}
            (settings,) = {producer_groups(broker)["shop"].settings for broker in mesh.brokers}
            assert settings.check_url == urls[settings.max_checks - 1]
            told = {answer.json()["check_secret"] for answer in answers if "check_secret" in answer.json()}
            assert told == ({settings.check_secret} if not number else set())
        delete_producers(mesh.brokers[0], "shop")
        assert (await put(mesh, timeout="7s")).json()["max_checks"] == settings.max_checks
        (after,) = {producer_groups(broker)["shop"].settings for broker in mesh.brokers}
        assert (after.check_secret, after.timeout_ms) == (settings.check_secret, 7_000)


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org/x", "http://hooks.example.com.evil.org/", "http://10.0.0.1/", "ftp://127.0.0.1/"),
        *("http://user@127.0.0.1/", "http://127.0.0.1:22/", "http://169.254.169.254/latest", "http://127.1/"),
        *("http://[::1]/", "127.0.0.1", "http://0x7f000001/"),
    ],
)
async def test_urls_that_are_not_listed_are_refused(url: str) -> None:
    """400 check-url-forbidden with the rule, before a broker is asked."""
    async with proxy_mesh(check_hosts=HOSTS) as mesh:
        refused = await put(mesh, check_url=url)
        assert code_of(refused) == (400, "check-url-forbidden")
        assert refused.json()["reason"]
        assert not mesh.broker.asked[RequestCode.ALTER_PRODUCER_GROUP]


async def test_a_private_host_by_http_needs_a_setting_that_the_refusal_names() -> None:
    """Off by default; with it, the same URL is taken."""
    url = "http://10.1.2.3:9000/checks"
    async with proxy_mesh(check_hosts=CheckHosts.parse("10.1.0.0/16")) as mesh:
        refused = await put(mesh, check_url=url)
        assert code_of(refused) == (400, "check-url-forbidden")
        assert "--check-http" in refused.json()["detail"]
    async with proxy_mesh(check_hosts=CheckHosts.parse("10.1.0.0/16", is_http_allowed=True)) as mesh:
        assert (await put(mesh, check_url=url)).status_code == 201


async def test_without_a_list_no_url_is_allowed_and_pull_is() -> None:
    """The default."""
    async with proxy_mesh() as mesh:
        assert code_of(await put(mesh, check_url=URL)) == (400, "check-url-forbidden")
        assert (await put(mesh, check_url="")).status_code == 201


def test_a_list_of_hosts_that_cannot_be_one_stops_the_proxy_at_its_start() -> None:
    """ValueError with the entry, which load_settings tells and ends the process; several options are one list."""
    settings = {"namesrv": ("http://127.0.0.1:9876",), "cluster_key_file": Path("key")}
    with pytest.raises(ValueError, match="no host that may be called"):
        ProxySettings(**settings, check_hosts=("127.0.0.1", "not a host"))  # type: ignore[arg-type]
    hosts = ProxySettings(**settings, check_hosts=("127.0.0.1", "hooks.example.com")).parse_check_hosts()  # type: ignore[arg-type]
    assert not hosts.is_http_allowed
    assert ProxySettings(**settings, check_http=True).parse_check_hosts().is_http_allowed  # type: ignore[arg-type]
    assert hosts == HOSTS


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"check_url": 7}, "invalid-field", "/check_url"),
        ({"check_url": "http://127.0.0.1/" + "x" * 2_048}, "invalid-field", "/check_url"),
        ({"check_secret": "secret"}, "invalid-field", "/check_secret"),
        ({"check_secret": "whsec_AAAA"}, "invalid-field", "/check_secret"),
        ({"check_secret": "whsec_!!!!"}, "invalid-field", "/check_secret"),
        ({"check_secret": "whsec_" + "QUFB" * 22}, "invalid-field", "/check_secret"),
        ({"timeout": "99ms"}, "invalid-field", "/timeout"),
        ({"timeout": "31s"}, "invalid-field", "/timeout"),
        ({"timeout": "soon"}, "invalid-field", "/timeout"),
        ({"max_checks": 0}, "invalid-field", "/max_checks"),
        ({"max_checks": 101}, "invalid-field", "/max_checks"),
        ({"max_checks": "3"}, "invalid-field", "/max_checks"),
        ({"check_after": "2h"}, "invalid-field", "/check_after"),
        ({"check_interval": -1}, "invalid-field", "/check_interval"),
        ({"include_body": 1}, "invalid-field", "/include_body"),
        ({"backoff": [1]}, "unknown-field", "/backoff"),
    ],
)
async def test_bad_settings_are_problems(fields: dict[str, Any], code: str, pointer: str) -> None:
    """With the field; nothing is declared."""
    async with proxy_mesh(check_hosts=HOSTS) as mesh:
        refused = await put(mesh, **fields)
        assert (*code_of(refused), refused.json()["pointer"]) == (400, code, pointer)
        assert producer_groups(mesh.broker) == {}


async def test_times_out_of_range_are_told_with_units() -> None:
    """What is allowed, and what was given, each as people write it."""
    async with proxy_mesh(check_hosts=HOSTS) as mesh:
        refused = await put(mesh, check_after="2h")
        assert "'check_after' is 100 ms to 60 min, not 2h" in refused.json()["detail"]
        refused = await put(mesh, timeout=31_000)
        assert "'timeout' is 100 ms to 30 s, not 31 s (31000)" in refused.json()["detail"]


async def test_bad_names_and_queries_are_problems() -> None:
    """For every method."""
    async with proxy_mesh() as mesh:
        for method in ("GET", "PUT", "DELETE"):
            assert code_of(await mesh.http.request(method, f"{ALL}/a.b")) == (400, "illegal-group")
            assert code_of(await mesh.http.request(method, f"{SHOP}?x=1")) == (400, "unknown-parameter")
        for method in ("GET", "DELETE"):
            assert code_of(await mesh.http.request(method, SHOP)) == (404, "producer-group-not-found")
        for query in ("limit=0", "cursor=x", "q=s"):
            assert (await mesh.http.get(f"{ALL}?{query}")).status_code == 400


async def test_lists_go_through_pages_and_add_up_numbers() -> None:
    """In order of names, each once, over both broker groups, though one lacks some."""
    async with proxy_mesh(*two_groups()) as mesh:
        names = [f"pg-{number}" for number in range(7)]
        declare(mesh, *names)
        del producer_groups(mesh.brokers[0])["pg-3"], producer_groups(mesh.brokers[1])["pg-0"]
        for _ in range(4):
            assert (await begin(mesh, MQ_Producer_Group="pg-5")).status_code == 201
        for limit in (1, 2, 3, 7, 8):
            found: list[dict[str, Any]] = []
            cursor = ""
            while True:
                page = (await mesh.http.get(f"{ALL}?limit={limit}&cursor={cursor}")).json()
                assert len(page["producer_groups"]) <= limit
                found += page["producer_groups"]
                cursor = page["next_cursor"]
                if not cursor:
                    break
            assert [row["producer_group"] for row in found] == names
            assert found[5]["stats"] == {**NONE, "open": 4}


async def test_a_producer_group_with_transactions_stays_whole() -> None:
    """409 as long as one is open or expired anywhere, and no broker group has deleted its part; then 204, and the name is free."""
    async with proxy_mesh(*two_groups()) as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        busy = await mesh.http.delete(SHOP)
        assert (*code_of(busy), busy.json()["open"]) == (409, "producer-group-busy", 1)
        expire_transactions(next(broker for broker in mesh.brokers if open_transactions(broker)), "shop")
        assert (await mesh.http.delete(SHOP)).json()["expired"] == 1
        assert all("shop" in producer_groups(broker) for broker in mesh.brokers)
        await end(mesh, begun, "resolve", outcome="rollback", reason="test")
        assert (await mesh.http.delete(SHOP)).status_code == 204
        assert not any("shop" in producer_groups(broker) for broker in mesh.brokers)
        assert code_of(await mesh.http.delete(SHOP)) == (404, "producer-group-not-found")
        assert (await put(mesh)).status_code == 201


async def test_one_that_only_one_broker_group_has_is_described_and_deleted_there() -> None:
    """Made at its first use, where a leader was."""
    async with proxy_mesh(*two_groups()) as mesh:
        declare(mesh)
        delete_producers(mesh.brokers[1], "shop")
        assert (await mesh.http.get(SHOP)).status_code == 200
        assert (await mesh.http.delete(SHOP)).status_code == 204


async def test_trouble_in_one_broker_group_is_the_answer() -> None:
    """Never half an answer as if it were the whole, and the PUT may be repeated."""
    async with proxy_mesh(*two_groups()) as mesh:
        for code, method in (
            (RequestCode.ALTER_PRODUCER_GROUP, "PUT"),
            (RequestCode.DESCRIBE_PRODUCER_GROUP, "GET"),
            (RequestCode.DESCRIBE_PRODUCER_GROUP, "DELETE"),
        ):
            mesh.brokers[1].script(code, Overloaded(what="requests that wait"))
            assert code_of(await mesh.http.request(method, SHOP)) == (503, "overloaded")
        answers = await asyncio.gather(*(put(mesh) for _ in range(5)))
        assert {answer.status_code for answer in answers} <= {200, 201}
