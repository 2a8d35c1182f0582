"""Publications through the whole proxy: one home for each query, chunks whole or refused, batches once, who may do what."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tern_broker.core.feature_level import PUBLICATIONS_LEVEL
from tern_proxy.core.publications import home_among, known_home
from tern_wire.errors import OutcomeUnknown, StorageDamaged
from tern_wire.limits import BATCH_MESSAGES_MAX, LANE_SIZE_MAX_BYTES
from tern_wire.limits_publications import PUBLISHED_STAGES_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.publications import ListedPublication, PublicationList
from tern_wire.link.requests import RequestCode
from tern_wire.paths import PUBLICATIONS_PATH, publication_path, staged_path
from tern_wire.records.read import decode_record
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.two_groups import two_groups

TOPICS = {"orders": 4, "payments": 1}


@asynccontextmanager
async def publishing_mesh(*brokers: MemoryBroker, **settings: Any) -> AsyncIterator[ProxyMesh]:
    """A proxy in front of broker groups whose members all know publications."""
    async with proxy_mesh(*brokers, **{"topics": TOPICS, **settings}) as mesh:
        for broker in mesh.brokers:
            broker.propose(CommandKind.RAISE, {"level": PUBLICATIONS_LEVEL})
        yield mesh


def path_of(query: str = "q", topic: str = "orders", *, batch: Any = 0, partition: Any = 0, **more: Any) -> str:
    """Path of a chunk; *attempt*, *chunk*: 0."""
    return staged_path(topic, query, str(batch), str(partition), str(more.get("attempt", 0)), str(more.get("chunk", 0)))


async def stage(mesh: ProxyMesh, *bodies: str, fields: dict[str, Any] | None = None, **place: Any) -> httpx.Response:
    """Stage a chunk; *fields*: of every message; *params*: of the request."""
    params = place.pop("params", None)
    messages = [{"body": body, **(fields or {})} for body in bodies]
    return await mesh.http.put(path_of(**place), json={"messages": messages}, params=params)


async def publish(
    mesh: ProxyMesh, *stages: tuple[int, int, int], query: str = "q", batch: Any = 0, **fields: Any
) -> httpx.Response:
    """Publish a batch."""
    announced = [dict(zip(("partition", "attempt", "rows"), each, strict=True)) for each in stages]
    return await mesh.http.post(publication_path(query, str(batch)), json={"stages": announced, **fields})


def visible(mesh: ProxyMesh, topic: str = "orders") -> list[str]:
    """Bodies that consumers see, by broker group and queue."""
    return [
        decode_record(bytearray(record), 0).body.decode() for broker in mesh.brokers for record in broker.records(topic)
    ]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem."""
    return answer.status_code, answer.json()["code"]


def homes(mesh: ProxyMesh, query: str = "q") -> list[str]:
    """Broker groups that know a query."""
    return [broker.broker_group for broker in mesh.brokers if query in broker.engine.state.publications.queries]


async def test_a_batch_is_published_once_and_whole() -> None:
    """Two partitions and three chunks; a repeat of everything changes nothing."""
    async with publishing_mesh() as mesh:
        first = await stage(mesh, "a", "b")
        assert (first.status_code, first.json()) == (
            200,
            {
                "query": "q",
                "batch": 0,
                "partition": 0,
                "attempt": 0,
                "chunk": 0,
                "rows": 2,
                "replayed": False,
                "broker_group": "broker-a",
            },
        )
        assert (await stage(mesh, "a", "b")).json() == first.json() | {"replayed": True}
        await stage(mesh, "c", chunk=1)
        await stage(mesh, "d", partition=1, attempt=7)
        await stage(mesh, "never", partition=1, attempt=8)
        assert visible(mesh) == []
        told = await publish(mesh, (0, 0, 3), (1, 7, 1))
        assert told.status_code == 200, told.text
        assert (told.json()["rows"], told.json()["replayed"]) == (4, False)
        assert sorted(visible(mesh)) == ["a", "b", "c", "d"]
        again = await publish(mesh, (0, 0, 3), (1, 8, 1))
        assert again.json() == told.json() | {"replayed": True}
        assert code_of(await stage(mesh, "late")) == (409, "batch-published")
        assert len(visible(mesh)) == 4
        assert mesh.proxy.counters.messages["staged"] == 5


async def test_an_unknown_answer_is_asked_for_again_and_stages_and_publishes_once() -> None:
    """The broker group did it, and its answer was lost: the link repeats, and the repeat is a replay."""

    async with publishing_mesh() as mesh:
        mesh.broker.script(RequestCode.STAGE, OutcomeUnknown())
        assert (await stage(mesh, "a")).status_code == 200
        mesh.broker.script(RequestCode.PUBLISH, OutcomeUnknown())
        assert (await publish(mesh, (0, 0, 1))).status_code == 200
        assert [mesh.broker.asked[code] for code in (RequestCode.STAGE, RequestCode.PUBLISH)] == [2, 2]
        assert visible(mesh) == ["a"]


async def test_a_query_has_one_home_whatever_proxy_is_asked() -> None:
    """The second proxy finds what the first one began; and neither publishes what the home does not have."""
    async with publishing_mesh(*two_groups()) as mesh:
        for number in range(8):
            await stage(mesh, f"m{number}", query=f"q-{number}")
        by_query = {f"q-{number}": homes(mesh, f"q-{number}") for number in range(8)}
        assert all(len(found) == 1 for found in by_query.values()), by_query
        assert {found[0] for found in by_query.values()} == {"broker-a", "broker-b"}
        assert by_query == {query: [home_among(query, ["broker-a", "broker-b"])] for query in by_query}
        # Another proxy: nothing is remembered.
        for query, (home,) in by_query.items():
            mesh.proxy.query_homes.forget(query)
            other = "broker-a" if home == "broker-b" else "broker-b"
            mesh.proxy.cache.wiped = frozenset({home})  # a new query would not begin here
            mesh.proxy.query_homes.forget(query)
            assert (await publish(mesh, (0, 0, 1), query=query, topics=["orders"])).json()["broker_group"] == home
            assert homes(mesh, query) == [home] != [other]
            mesh.proxy.cache.wiped = frozenset()
        assert len(visible(mesh)) == 8


async def test_a_broker_group_that_does_not_answer_may_be_the_home() -> None:
    """Nothing is begun elsewhere meanwhile: a batch might be published twice."""
    async with publishing_mesh(*two_groups()) as mesh:
        await stage(mesh, "a")
        (home,) = homes(mesh)
        mesh.proxy.query_homes.forget("q")
        broker = next(broker for broker in mesh.brokers if broker.broker_group == home)
        broker.script(RequestCode.LIST_PUBLICATIONS, StorageDamaged(broker_group=home))
        assert (await stage(mesh, "b", chunk=1)).status_code == 503
        assert homes(mesh) == [home]
        assert (await stage(mesh, "b", chunk=1)).json()["broker_group"] == home


def test_of_two_homes_the_one_that_has_published_remains() -> None:
    """Or else the one that every proxy chooses."""

    def told(batch: int) -> PublicationList:
        row = ListedPublication(
            query="q",
            owner="",
            batch=batch,
            rows=0,
            published_ms=0,
            is_final=False,
            stages=0,
            staged_rows=0,
            topics=[],
            shown=[],
        )
        return PublicationList(publications=[row])

    none = PublicationList(publications=[])
    assert known_home("q", [("broker-a", none), ("broker-b", none)]) == ""
    for last, expected in ((("broker-a", 3), "broker-a"), (("broker-b", 3), "broker-b")):
        answers = [(name, told(last[1] if name == last[0] else -1)) for name in ("broker-a", "broker-b")]
        assert known_home("q", answers) == expected
    both = [("broker-a", told(-1)), ("broker-b", told(-1))]
    assert known_home("q", both) == home_among("q", ["broker-b", "broker-a"])


async def test_what_belongs_to_another_broker_group_is_refused_with_the_whole_chunk() -> None:
    """A pinned queue, and a message group of which the other broker group decides."""
    async with publishing_mesh(*two_groups()) as mesh:
        await stage(mesh, "a")
        (home,) = homes(mesh)
        other = "broker-a" if home == "broker-b" else "broker-b"
        refused = await mesh.http.put(
            path_of(chunk=1), json={"messages": [{"body": "x"}, {"body": "y", "queue": f"{other}:0"}]}
        )
        assert code_of(refused) == (409, "query-elsewhere"), refused.text
        assert "message 1 of topic 'orders'" in refused.json()["detail"]
        outcomes = {
            (await stage(mesh, "x", chunk=2 + number, fields={"message_group": f"g-{number}"})).status_code
            for number in range(8)
        }
        assert outcomes == {200, 409}
        assert (await stage(mesh, "x", chunk=20, fields={"queue": f"{home}:1"})).status_code == 200
        rows = (
            mesh.brokers[0].engine.state.publications.totals.rows
            + mesh.brokers[1].engine.state.publications.totals.rows
        )
        assert (await publish(mesh, (0, 0, rows))).json()["rows"] == rows


async def test_topics_of_one_query_need_one_broker_group_in_common() -> None:
    """Otherwise the second topic is refused, before and after the query has begun."""
    async with publishing_mesh(*two_groups(), topics={"orders": 2}) as mesh:
        mesh.brokers[1].create_topic("payments", 1)
        await mesh.proxy.cache.refresh()
        query = next(
            f"q-{number}" for number in range(50) if home_among(f"q-{number}", ["broker-a", "broker-b"]) == "broker-a"
        )
        assert (await stage(mesh, "a", query=query)).json()["broker_group"] == "broker-a"
        assert code_of(await stage(mesh, "p", query=query, topic="payments", partition=1)) == (409, "query-elsewhere")
        told = await publish(mesh, query="new", topics=["orders", "payments"])
        assert told.json()["broker_group"] == "broker-b"


async def test_a_large_chunk_travels_in_parts() -> None:
    """As many as it needs; a repeat is a replay of all."""
    async with publishing_mesh() as mesh:
        body = "x" * (LANE_SIZE_MAX_BYTES // 4)
        bodies = [f"{number}{body}" for number in range(10)]
        answer = await stage(mesh, *bodies)
        assert (answer.json()["rows"], answer.json()["replayed"]) == (10, False)
        assert mesh.broker.asked[RequestCode.STAGE] == 4
        assert (await stage(mesh, *bodies)).json()["replayed"] is True
        small = [str(number) for number in range(BATCH_MESSAGES_MAX)]
        assert (await stage(mesh, *small, chunk=1)).json()["rows"] == BATCH_MESSAGES_MAX
        assert (await publish(mesh, (0, 0, 10 + BATCH_MESSAGES_MAX))).json()["rows"] == 10 + BATCH_MESSAGES_MAX
        assert visible(mesh) == bodies + small or sorted(visible(mesh)) == sorted(bodies + small)


async def test_messages_keep_their_properties_and_delays() -> None:
    """Tag, keys and properties as in any send; a delayed one waits from its staging on."""
    async with publishing_mesh() as mesh:
        await stage(mesh, "now", fields={"tag": "t", "keys": ["k"], "properties": {"p": "1"}})
        await stage(mesh, "later", fields={"delay": "10s"}, chunk=1)
        assert (await publish(mesh, (0, 0, 2))).status_code == 200
        assert visible(mesh) == ["now"]
        (record,) = mesh.broker.records("orders")
        properties = decode_record(bytearray(record), 0).properties
        assert (properties["TAGS"], properties["KEYS"], properties["p"]) == ("t", "k", "1")
        mesh.broker.pass_time(11_000)
        assert sorted(visible(mesh)) == ["later", "now"]
        found = await mesh.http.get("/v1/topics/orders/messages", params={"key": "k"})
        assert [each["body"] for each in found.json()["messages"]] == ["now"]


@pytest.mark.parametrize(
    ("place", "params", "pointer"),
    [
        ({"query": "no spaces"}, {}, "path/query"),
        ({"query": ".hidden"}, {}, "path/query"),
        ({"batch": "-1"}, {}, "path/batch"),
        ({"batch": "x"}, {}, "path/batch"),
        ({"chunk": 1 << 50}, {}, "path/chunk"),
        ({}, {"life": "9m"}, "query/life"),
        ({}, {"life": "2d"}, "query/life"),
        ({}, {"life": "soon"}, "query/life"),
        ({}, {"accept_lost_history": "yes"}, "query/accept_lost_history"),
    ],
)
async def test_bad_numbers_and_names_are_refused_where_they_are(
    place: dict[str, Any], params: dict[str, str], pointer: str
) -> None:
    """400 with a pointer; nothing is staged."""
    async with publishing_mesh() as mesh:
        answer = await stage(mesh, "a", params=params, **place)
        assert code_of(answer) == (400, "invalid-field"), answer.text
        assert answer.json()["pointer"] == pointer
        assert mesh.broker.asked[RequestCode.STAGE] == 0


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        (
            {"stages": [{"partition": 0, "attempt": 0, "rows": 1}, {"partition": 0, "attempt": 1, "rows": 1}]},
            "/stages/1/partition",
        ),
        ({"stages": [{"partition": 0, "attempt": 0, "rows": -1}]}, "/stages/0/rows"),
        ({"stages": [{"partition": 0, "attempt": 1 << 60, "rows": 1}]}, "/stages/0/attempt"),
        ({"topics": ["t"] * 65}, "/topics"),
    ],
)
async def test_a_publication_that_says_nonsense_is_refused(fields: dict[str, Any], pointer: str) -> None:
    """400 with a pointer."""
    async with publishing_mesh() as mesh:
        answer = await publish(mesh, **fields)
        assert (code_of(answer), answer.json()["pointer"]) == ((400, "invalid-field"), pointer)


async def test_a_chunk_with_one_bad_message_or_an_idempotency_key_stages_nothing() -> None:
    """The error has the pointer of the message."""
    async with publishing_mesh() as mesh:
        bad = {"messages": [{"body": "a"}, {"body": "b", "tag": "x|y"}]}
        answer = await mesh.http.put(path_of(), json=bad)
        assert (code_of(answer), answer.json()["pointer"]) == ((400, "illegal-tag"), "/messages/1/tag")
        answer = await stage(mesh, "a", fields={"idempotency_key": "k"})
        assert answer.json()["pointer"] == "/messages/0/idempotency_key"
        assert mesh.broker.engine.state.publications.queries == {}


async def test_a_lost_history_is_told_and_can_be_accepted() -> None:
    """At a stage and at a publication without stages."""
    async with publishing_mesh() as mesh:
        assert code_of(await stage(mesh, "a", batch=5)) == (409, "publication-history-lost")
        assert code_of(await publish(mesh, batch=5)) == (409, "publication-history-lost")
        assert (await stage(mesh, "a", batch=5, params={"accept_lost_history": "true"})).status_code == 200
        assert (await publish(mesh, (0, 0, 1), batch=5)).json()["batch"] == 5
        assert (await publish(mesh, query="r", batch=7, accept_lost_history=True)).json()["batch"] == 7


async def test_a_batch_is_given_up_and_shown() -> None:
    """Its stages are listed until then; the published ones are not."""
    async with publishing_mesh() as mesh:
        await stage(mesh, "a")
        await publish(mesh, (0, 0, 1))
        await stage(mesh, "b", "c", batch=1, attempt=4)
        shown = (await mesh.http.get(publication_path("q"))).json()
        assert (shown["batch"], shown["rows"], shown["stages"], shown["staged_rows"]) == (0, 1, 1, 2)
        assert shown["topics"] == ["orders"]
        (staged,) = shown["staged"]
        assert (staged["batch"], staged["attempt"], staged["rows"]) == (1, 4, 2)
        assert staged["kept_until"] > staged["staged_at"]
        (listed,) = (await mesh.http.get(PUBLICATIONS_PATH)).json()["publications"]
        assert listed == {name: value for name, value in shown.items() if name != "staged"}
        dropped = await mesh.http.delete(publication_path("q", "1"))
        assert dropped.json() == {"query": "q", "batch": 1, "stages": 1, "rows": 2}
        assert (await mesh.http.delete(publication_path("q", "1"))).json()["stages"] == 0
        assert code_of(await publish(mesh, (0, 4, 2), batch=1)) == (409, "stage-unknown")
        assert visible(mesh) == ["a"]
        assert code_of(await mesh.http.get(publication_path("other"))) == (404, "publication-not-found")
        assert code_of(await mesh.http.delete(publication_path("other", "1"))) == (404, "publication-not-found")


async def test_nothing_is_staged_before_every_member_knows_publications() -> None:
    """While a broker group is upgraded."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        mesh.broker.stay_at_level(PUBLICATIONS_LEVEL - 1)
        for answer in (await stage(mesh, "a"), await publish(mesh)):
            assert code_of(answer) == (503, "upgrade-unfinished"), answer.text


async def test_a_publication_may_name_as_many_stages_as_there_may_be() -> None:
    """In one request, of JSON with long numbers; one more is refused."""
    async with publishing_mesh() as mesh:
        attempt = (1 << 53) - 1
        for partition in (0, PUBLISHED_STAGES_MAX - 1):
            await stage(mesh, "a", partition=partition, attempt=attempt)
        some = [
            (number, attempt, int(number in {0, PUBLISHED_STAGES_MAX - 1})) for number in range(PUBLISHED_STAGES_MAX)
        ]
        assert (await publish(mesh, *some)).json()["rows"] == 2
        many = await publish(mesh, *some, (PUBLISHED_STAGES_MAX, 0, 0))
        assert (code_of(many), many.json()["pointer"]) == ((400, "invalid-field"), "/stages")
