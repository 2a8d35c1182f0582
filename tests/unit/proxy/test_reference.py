"""What explains the API: /docs from local files alone, and a page for each error, to which the `type` of each problem leads."""

import base64
import hashlib
import re

import pytest

from tern_wire.errors import ERRORS
from tern_wire.paths import MSGPACK, PROBLEM, problem_path
from tests.support.proxy.guarded_mesh import guarded_mesh
from tests.support.proxy.proxy_mesh import proxy_mesh

pytestmark = pytest.mark.anyio
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def test_docs_is_a_page_whose_files_are_here() -> None:
    """Nothing is fetched from another host, each file that it names is there, and its policy lets its own script run."""
    async with proxy_mesh() as mesh:
        page = await mesh.http.get("/docs", headers=BROWSER)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(named) == 3
        for name in named:
            file = await mesh.http.get(f"/{name}")
            assert file.status_code == 200, name
            assert len(file.content) > 100
        assert "//" not in re.sub(r"<!--.*?-->", "", page.text).replace("</", "")
        script = re.search(r"<script>(.*?)</script>", page.text, re.DOTALL)
        assert script is not None
        digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
        assert f"script-src 'self' 'sha256-{digest}';" in page.headers["content-security-policy"]
        assert (await mesh.http.get("/openapi.json")).status_code == 200


@pytest.mark.parametrize("asset", ["../openapi.json", "swagger-ui.js", "__init__.py", "%2e%2e%2fmain.py"])
async def test_nothing_else_is_served_from_there(asset: str) -> None:
    """Only the files of the page have a name."""
    async with proxy_mesh() as mesh:
        answer = mesh.raw("GET", f"/docs/{asset}")
        await answer.task
        assert answer.status == 404


@pytest.mark.parametrize("code", sorted(ERRORS))
async def test_every_error_is_explained(code: str) -> None:
    """For programs and for people."""
    async with proxy_mesh() as mesh:
        found = (await mesh.http.get(problem_path(code))).json()
        assert (found["code"], found["title"]) == (code, ERRORS[code].title)
        assert found["example"]["type"] == problem_path(code)
        page = await mesh.http.get(problem_path(code), headers=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "<h1>" in page.text
        assert ERRORS[code].title.replace("'", "&#x27;") in page.text


async def test_the_type_of_a_problem_leads_to_its_explanation() -> None:
    """As RFC 9457 asks for; it says which routes answer it."""
    async with proxy_mesh() as mesh:
        problem = (await mesh.http.get("/v1/topics/nothing/stats")).json()
        found = (await mesh.http.get(problem["type"])).json()
        assert found["code"] == problem["code"] == "topic-not-found"
        assert "GET /v1/topics/{topic}/stats" in found["routes"]
        assert (found["fields"], found["everywhere"]) == (["topic"], False)
        listed = (await mesh.http.get("/problems")).json()["problems"]
        assert {each["code"] for each in listed} == ERRORS.keys()
        packed = await mesh.http.get("/problems/overloaded", headers={"Accept": MSGPACK})
        assert packed.headers["content-type"] == MSGPACK


async def test_an_error_that_is_none_is_not_found() -> None:
    """And nothing of its name becomes markup."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.get("/problems/<script>", headers=BROWSER)
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
        assert answer.json()["code"] == "problem-not-found"


@pytest.mark.parametrize("path", ["/docs", "/docs/swagger-ui.css", "/problems", "/problems/internal", "/openapi.json"])
async def test_behind_a_guard_all_of_it_needs_credentials(path: str) -> None:
    """As every route does: it tells which release runs here."""
    async with guarded_mesh() as mesh:
        assert (await mesh.http.get(path)).status_code == 401
