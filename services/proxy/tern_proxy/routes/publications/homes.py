"""Requests to the home of a query: looked up, asked, and looked up again after a refusal."""

from collections.abc import Sequence

from tern_proxy.core.publications import home_among, known_home, new_home
from tern_proxy.core.sending.topic import Topic
from tern_proxy.proxy import Proxy
from tern_proxy.routes.fan_out import ask_all, broker_group_names
from tern_wire.errors import TernError
from tern_wire.link.heads import LinkRequest, R
from tern_wire.link.publications import ListPublications


async def find_home(proxy: Proxy, query: str) -> str:
    """Return the broker group that knows *query*; "" if none does.

    Raise the error of a broker group that does not answer: it may be the one.
    """
    home = proxy.query_homes.get(query)
    if not home:
        home = known_home(query, await ask_all(proxy, ListPublications(query=query)))
        if home:
            proxy.query_homes.put(query, home)
    return home


async def home_of(proxy: Proxy, query: str, topics: Sequence[Topic]) -> str:
    """Return the home of *query*, which may be new: one of the broker groups of *topics*, or of all
    if there are none.
    """
    home = await find_home(proxy, query)
    if not home:
        names = await broker_group_names(proxy)
        home = new_home(query, topics, proxy.cache.wiped) if topics else home_among(query, names)
        proxy.query_homes.put(query, home)
    return home


async def ask_home(
    proxy: Proxy, query: str, home: str, request: LinkRequest[R], raw: Sequence[bytes | bytearray | memoryview] = ()
) -> R:
    """Return the answer of *home*, which *request* may reach twice."""
    try:
        answer, _ = await proxy.group(home).link.ask(request, raw, is_repeatable=True)
    except TernError:
        proxy.query_homes.forget(query)
        raise
    return answer
