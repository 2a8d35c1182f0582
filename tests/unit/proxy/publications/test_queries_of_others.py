"""Whose a query is: of one principal, in one namespace."""

from tern_broker.core.feature_level import PUBLICATIONS_LEVEL
from tern_wire.link.commands import CommandKind
from tern_wire.paths import PUBLICATIONS_PATH, publication_path
from tests.support.proxy.guarded_mesh import guarded_mesh
from tests.unit.proxy.publications.test_publications import code_of, path_of, publishing_mesh, stage, visible


async def test_a_query_is_its_principals_alone() -> None:
    """Another principal with the same rights neither stages, publishes nor drops; an operator may drop, and sees it."""
    async with guarded_mesh() as mesh:
        mesh.broker.propose(CommandKind.RAISE, {"level": PUBLICATIONS_LEVEL})
        owner, other = (mesh.known.put(name, ("allow ALL topic orders",)) for name in ("owner", "other"))
        nobody = mesh.known.put("nobody", ("allow SUB topic orders",))
        operator = mesh.known.put("operator", ("allow ALL cluster *",))
        body = {"messages": [{"body": "a"}]}
        assert (await mesh.ask("PUT", path_of(), owner, json=body)).status_code == 200
        one = publication_path("q", "0")
        announced = {"stages": [{"partition": 0, "attempt": 0, "rows": 1}]}
        for answer in (
            await mesh.ask("PUT", path_of(chunk=1), other, json=body),
            await mesh.ask("POST", one, other, json=announced),
            await mesh.ask("DELETE", one, other),
        ):
            assert code_of(answer) == (404, "publication-not-found"), answer.text
        for answer in (await mesh.ask("POST", one, nobody, json=announced), await mesh.ask("DELETE", one, nobody)):
            assert code_of(answer) == (403, "forbidden"), answer.text
        assert (await mesh.ask("GET", publication_path("q"), operator)).json()["owner"] == "owner"
        assert (await mesh.ask("DELETE", one, operator)).json()["rows"] == 1
        assert (await mesh.ask("PUT", path_of(), owner, json=body)).json()["replayed"] is False
        mesh.known.put("owner", ("allow SUB topic orders",))
        assert code_of(await mesh.ask("POST", one, owner, json=announced))[0] in {401, 403}


async def test_a_namespace_has_queries_of_its_own() -> None:
    """The same name twice, and answers with the names that the client wrote."""
    async with publishing_mesh() as mesh:
        mesh.broker.create_topic("acme%orders", 1)
        await mesh.proxy.cache.refresh()
        inside = {"MQ-Namespace": "acme"}
        body = {"messages": [{"body": "inner"}]}
        await stage(mesh, "outer")
        answer = await mesh.http.put(path_of(), json=body, headers=inside)
        assert (answer.status_code, answer.json()["query"], answer.json()["replayed"]) == (200, "q", False)
        assert set(mesh.broker.engine.state.publications.queries) == {"q", "acme%q"}
        shown = (await mesh.http.get(publication_path("q"), headers=inside)).json()
        assert (shown["query"], shown["topics"], shown["staged_rows"]) == ("q", ["orders"], 1)
        listed = (await mesh.http.get(PUBLICATIONS_PATH, headers=inside)).json()["publications"]
        assert [each["query"] for each in listed] == ["q"]
        told = await mesh.http.post(
            publication_path("q", "0"),
            json={"stages": [{"partition": 0, "attempt": 0, "rows": 1}], "topics": ["orders"]},
            headers=inside,
        )
        assert told.json()["query"] == "q"
        lost = await mesh.http.post(publication_path("r", "3"), json={}, headers=inside)
        assert "acme%" not in lost.text
        assert visible(mesh, "acme%orders") == ["inner"]
        assert visible(mesh) == []
