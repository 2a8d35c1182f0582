"""Handlers for principals with their grants: declared, described, listed, deleted.

A change is told to every broker group (`writes.py`). 2xx: all of them have it, and every proxy
follows within 5 s, this one at once. 503 principal-partly-written: some have it for good, and
proxies that reach one of these follow within 5 s; the others get it as soon as they answer, and a
repeat of the request makes sure. 409 principal-changed: another change counts, or, made at the same
time where neither writer reached all groups, one of the two: read again. Any other error: no broker
group has changed anything, or (504 outcome-unknown) nobody knows. A key is the exception
(`keys.py`).
"""

from tern_proxy.core.access.principals import KIND_OF, acl_rows, grant_state, principal_state, put_change
from tern_proxy.core.documents.principals import (
    AclPage,
    PrincipalDeclared,
    PrincipalPage,
    PrincipalSettings,
    PrincipalState,
    WhoAmI,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.principals.writes import ANY_VERSION, found, known, write_everywhere
from tern_wire.errors import PrincipalChanged, PrincipalNotFound
from tern_wire.principals.documents import deletion
from tern_wire.principals.principals import ROOT_NAME, check_principal

# Attempts of a change without an expected version that loses to a concurrent one.
PUT_ATTEMPTS = 4


async def get_whoami(call: Call) -> WhoAmI:
    """Who asks, and what they may do. Where credentials are not required, `principal` is empty and
    everything is allowed.
    """
    name = call.admission.principal
    me = call.proxy.principals.table.principals.get(name)
    return WhoAmI(
        principal=name,
        authenticated=bool(name),
        root=name == ROOT_NAME,
        grants=[grant_state(grant) for grant in me.grants] if me is not None else [],
        requests_per_s=me.requests_per_s if me is not None else 0,
        bytes_per_s=me.bytes_per_s if me is not None else 0,
    )


async def list_principals(call: Call) -> PrincipalPage:
    """Principals in order of their names, page by page, with their grants and what is known of
    their keys. `q` looks in names.
    """
    page = read_page(call.query, {"name": str})
    principals = call.proxy.principals
    await principals.refresh()
    now_ms = call.proxy.clock.now_ms()
    rows = {each.name: each for each in principals.documents() if page.pattern in each.name.lower()}
    names, cursor = take_page(((name, name) for name in rows), page)
    return PrincipalPage(principals=[principal_state(rows[name], now_ms) for name in names], next_cursor=cursor)


async def get_principal(call: Call, principal: str) -> PrincipalState:
    """Return grants, quotas, and descriptions of the keys, never the keys themselves."""
    return principal_state(await found(call.proxy.principals, principal), call.proxy.clock.now_ms())


async def put_principal(call: Call, principal: str) -> Answer:
    """Declare a principal: afterwards it exists, with the given fields. 201 when it is new.

    What is left out stays; `grants` replaces all of them. With `version` only if nobody has changed
    it since (409 principal-changed); 0 stands for one that is not there. It can do nothing before
    it has a grant and a key.
    """
    proxy = call.proxy
    check_principal(principal)
    settings = await call.read(PrincipalSettings)
    for attempt in range(PUT_ATTEMPTS):
        before = await known(proxy.principals, principal)
        change, is_news = put_change(before, settings)
        try:
            base = before.settled if is_news else ANY_VERSION
            await write_everywhere(proxy, change, base=base, is_repair=not is_news)
            break
        except PrincipalChanged:
            if isinstance(settings.version, int) or attempt == PUT_ATTEMPTS - 1:
                raise
    after = principal_state(proxy.principals.document(principal) or change, proxy.clock.now_ms())
    created = not before.is_there
    return Answer(extended(after, PrincipalDeclared, created=created), 201 if created else 200)


async def delete_principal(call: Call, principal: str) -> None:
    """Delete a principal with its grants and keys: every proxy refuses them within 5 s. The name is
    free again. Repeating this is safe: 404 is answered only where nobody knows of such a principal,
    nor that it was deleted.
    """
    proxy = call.proxy
    check_principal(principal)
    before = await known(proxy.principals, principal)
    if before.is_there:
        await write_everywhere(proxy, deletion(before, proxy.clock.now_ms()))
    elif before.deleted:
        await write_everywhere(proxy, before, is_repair=True)
    else:
        raise PrincipalNotFound(principal=principal)


async def list_acls(call: Call) -> AclPage:
    """Grants of all principals, or those that speak of `topic`, `group` or `producer_group`:
    literal ones, and prefixes of that name.
    """
    page = read_page(call.query, {"name": str})
    principals = call.proxy.principals
    await principals.refresh()
    objects = {kind: call.query[name] for name, kind in KIND_OF.items() if call.query.get(name)}
    rows = dict(acl_rows(principals.documents(), objects))
    keys, cursor = take_page(((key, key) for key in rows), page)
    return AclPage(acls=[rows[key] for key in keys], next_cursor=cursor)
