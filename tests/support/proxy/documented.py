"""Every answer that a test gets from a proxy is one that the API document names: its status, and the code of a problem."""

import orjson

from tern_proxy.routes.table import RouteTable
from tern_wire.errors import MethodNotAllowed, RouteNotFound
from tern_wire.paths import PROBLEM

_TABLE = RouteTable()
# What is answered where there is no route.
_NO_ROUTE = {MethodNotAllowed.code, RouteNotFound.code}


def check_documented(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """AssertionError for an answer that the row of the request does not have. *path*: decoded."""
    found = _TABLE.find(method, path)
    asked = f"{method} {found[0].path if found else path}"
    if content_type != PROBLEM or method == "HEAD":
        assert found is None or not found[0].id or status in found[0].gives, f"{asked}: {status} is not documented"
        return
    code = orjson.loads(body)["code"]
    if found is None:
        return
    row = found[0]
    known = {error.code for error in row.failures} | (_NO_ROUTE if not row.id else set())
    assert code in known, f"{asked}: {status} {code} is not documented"
