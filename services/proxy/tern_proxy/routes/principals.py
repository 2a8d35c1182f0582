"""Principals, their keys and grants: declared, described, listed, deleted, revoked. Ordinary FastAPI routes.

A change is told to every broker group (`principal_writes.py`). 2xx: all of them have it, and every proxy follows within 5 s, this one at
once. 503 principal-partly-written: some have it for good, and proxies that reach one of these follow within 5 s; the others get it as soon as
they answer, and a repeat of the request makes sure. 409 principal-changed: another change counts, or, made at the same time where neither
writer reached all groups, one of the two: read again. Any other error: no broker group has changed anything, or (504 outcome-unknown) nobody
knows. A key is the exception: its text is told once, so it is answered 201 as soon as one broker group has it, with the names of those
that do not.
"""

import secrets
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.principals import KIND_OF, acl_rows, new_key, principal_document, put_change
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import answer_form, read_document, read_parameters, refuse_query, respond
from tern_proxy.routes.principal_writes import ANY_VERSION, known, write, write_everywhere
from tern_wire.errors import ClientKeyNotFound, PrincipalChanged, PrincipalNotFound, TernError
from tern_wire.messages import KeySettings, PrincipalSettings
from tern_wire.paths import ACLS_PATH, PRINCIPALS_PATH, WHOAMI_PATH, keys_path, principal_path
from tern_wire.principals.client_keys import (
    KID_ALPHABET,
    KID_LENGTH,
    SECRET_SIZE_BYTES,
    ClientKey,
    is_kid,
    key_document,
)
from tern_wire.principals.documents import PrincipalDocument, addition, deletion, revocation
from tern_wire.principals.principals import ROOT_NAME, check_principal
from tern_wire.principals.signing_secrets import SigningSecrets

# A writer who was too late looks again, if the request does not say what it expects.
PUT_ATTEMPTS = 4
_SECRET = {"Cache-Control": "no-store"}


def principals_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    principals = _Principals(proxy)
    router = APIRouter(default_response_class=Response)
    one = principal_path("{principal}")
    for method, path, handler, status in (
        ("GET", WHOAMI_PATH, principals.get_whoami, 200),
        ("GET", PRINCIPALS_PATH, principals.list_principals, 200),
        ("GET", one, principals.get_principal, 200),
        ("PUT", one, principals.put_principal, 200),
        ("DELETE", one, principals.delete_principal, 204),
        ("POST", keys_path("{principal}"), principals.post_key, 201),
        ("DELETE", keys_path("{principal}", "{kid}"), principals.delete_key, 204),
        ("GET", ACLS_PATH, principals.list_acls, 200),
    ):
        router.add_api_route(path, handler, methods=[method], status_code=status, tags=["principals"])
    return router


class _Principals:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._secrets = SigningSecrets(proxy.cluster_key)

    async def get_whoami(self, request: Request) -> Response:
        """Who asks, and what they may do. Where credentials are not required, `principal` is empty and everything is allowed."""
        refuse_query(request)
        answer_form(request)
        name = admission_of(request).principal
        found = self._proxy.principals.table.principals.get(name)
        document = {
            "principal": name,
            "authenticated": bool(name),
            "root": name == ROOT_NAME,
            "grants": [grant.document() for grant in found.grants] if found is not None else [],
            "requests_per_s": found.requests_per_s if found is not None else 0,
            "bytes_per_s": found.bytes_per_s if found is not None else 0,
        }
        return respond(request, document)

    async def list_principals(self, request: Request) -> Response:
        """Principals in order of their names, page by page, with their grants and what is known of their keys. `q` looks in names."""
        page = read_page(read_parameters(request, ("limit", "cursor", "q")), {"name": str})
        await self._proxy.principals.refresh()
        found = {each.name: each for each in self._proxy.principals.documents() if page.pattern in each.name.lower()}
        names, cursor = take_page(((name, name) for name in found), page)
        rows = [principal_document(found[name], self._now_ms()) for name in names]
        return respond(request, {"principals": rows, "next_cursor": cursor})

    async def get_principal(self, request: Request, principal: str) -> Response:
        """Grants, quotas, and what is known of its keys: never the keys themselves."""
        refuse_query(request)
        answer_form(request)
        return respond(request, principal_document(await self._found(principal), self._now_ms()))

    async def put_principal(self, request: Request, principal: str) -> Response:
        """Declare a principal: afterwards it is there, with what was named. 201 when it is new.

        What is left out stays; `grants` replaces all of them. With `version` only if nobody has changed it since (409 principal-changed); 0
        stands for one that is not there. It can do nothing before it has a grant and a key.
        """
        check_principal(principal)
        settings = await read_document(request, PrincipalSettings)
        for attempt in range(PUT_ATTEMPTS):
            before = await known(self._proxy.principals, principal)
            change, is_news = put_change(before, settings)
            try:
                base = before.settled if is_news else ANY_VERSION
                await write_everywhere(self._proxy, change, base=base, is_repair=not is_news)
                break
            except PrincipalChanged:
                if isinstance(settings.version, int) or attempt == PUT_ATTEMPTS - 1:
                    raise
        after = self._proxy.principals.document(principal) or change
        created = not before.is_there
        document = {**principal_document(after, self._now_ms()), "created": created}
        return respond(request, document, 201 if created else 200)

    async def delete_principal(self, request: Request, principal: str) -> Response:
        """Delete a principal with its grants and keys: every proxy refuses them within 5 s. The name is free again. Repeating this is safe: 404
        is answered only where nobody knows of such a principal, nor that it was deleted."""
        refuse_query(request)
        check_principal(principal)
        before = await known(self._proxy.principals, principal)
        if before.is_there:
            await write_everywhere(self._proxy, deletion(before, self._now_ms()))
        elif before.deleted:
            await write_everywhere(self._proxy, before, is_repair=True)
        else:
            raise PrincipalNotFound(principal=principal)
        return Response(status_code=204)

    async def post_key(self, request: Request, principal: str) -> Response:
        """Give a principal a key. A bearer or HMAC key is in `key` of this answer and nowhere else.

        At most two keys of a principal are live, so that one can be exchanged while the other is in use (429 limit-reached); expired ones make
        room. `missing_broker_groups` have not answered; they get it as soon as they do, and until then the key works at every proxy that
        reaches one of the others.
        """
        settings = await read_document(request, KeySettings)
        before = await self._found(principal)
        kid = "".join(secrets.choice(KID_ALPHABET) for _ in range(KID_LENGTH))
        chance = secrets.token_bytes(SECRET_SIZE_BYTES)
        key, text = new_key(principal, kid, chance, settings, self._secrets, self._now_ms())
        change = addition(before, key, self._now_ms())
        try:
            written = await write(self._proxy, change)
        except TernError:
            # Where it may be, nobody shall have a key whose text nobody was told.
            await self._take_back(change)
            raise
        document: dict[str, Any] = {"principal": principal, **key_document(key, self._now_ms())}
        if text:
            document["key"] = text
        document["missing_broker_groups"] = list(written.missing)
        answer = respond(request, document, 201)
        answer.headers.update(_SECRET)
        return answer

    async def delete_key(self, request: Request, principal: str, kid: str) -> Response:
        """Revoke a key: every proxy refuses it within 5 s, and it never becomes good again. Repeating this is safe."""
        refuse_query(request)
        before = await self._found(principal)
        gone = ClientKey(kid=kid, version=dict(before.revoked).get(kid, 0))
        key = next((each for each in before.keys if each.kid == kid), gone)
        if not is_kid(kid) or not key.version:
            raise ClientKeyNotFound(principal=principal, kid=kid[:KID_LENGTH])
        await write_everywhere(self._proxy, revocation(principal, [key]))
        return Response(status_code=204)

    async def list_acls(self, request: Request) -> Response:
        """Grants of all principals, or those that speak of `topic`, `group` or `producer_group`: literal ones, and prefixes of that name."""
        query = read_parameters(request, ("limit", "cursor", *KIND_OF))
        page = read_page({name: query[name] for name in ("limit", "cursor") if name in query}, {"name": str})
        await self._proxy.principals.refresh()
        objects = {kind: query[name] for name, kind in KIND_OF.items() if query.get(name)}
        rows = dict(acl_rows(self._proxy.principals.documents(), objects))
        keys, cursor = take_page(((key, key) for key in rows), page)
        return respond(request, {"acls": [rows[key] for key in keys], "next_cursor": cursor})

    async def _found(self, principal: str) -> PrincipalDocument:
        """What the leaders know of it; PrincipalNotFound, InvalidField."""
        check_principal(principal)
        found = await known(self._proxy.principals, principal)
        if not found.is_there:
            raise PrincipalNotFound(principal=principal)
        return found

    async def _take_back(self, change: PrincipalDocument) -> None:
        try:
            await write(self._proxy, revocation(change.name, change.keys))
        except TernError:
            # It was not stored anywhere, or stays in the list of keys, where it can be revoked.
            return

    def _now_ms(self) -> int:
        return self._proxy.clock.now_ms()
