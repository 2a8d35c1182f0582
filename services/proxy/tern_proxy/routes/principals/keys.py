"""Handlers for keys of principals: created and revoked.

The text of a key is told once, so a new one is answered 201 as soon as one broker group has it,
with the names of those that do not. Whatever else is said of a change of principals
(`principals.py`) holds for a revocation too.
"""

import secrets

from msgspec import UNSET

from tern_proxy.core.access.principals import key_state, new_key
from tern_proxy.core.documents.principals import ClientKeyMade, KeySettings
from tern_proxy.core.documents.values import extended
from tern_proxy.proxy import Proxy
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.principals.writes import found, write, write_everywhere
from tern_wire.errors import ClientKeyNotFound, TernError
from tern_wire.principals.client_keys import KID_ALPHABET, KID_LENGTH, SECRET_SIZE_BYTES, ClientKey, is_kid
from tern_wire.principals.documents import PrincipalDocument, addition, revocation

_SECRET = {"Cache-Control": "no-store"}


async def post_key(call: Call, principal: str) -> Answer:
    """Give a principal a key. A bearer key is in `key` of this answer and nowhere else.

    At most two keys of a principal are live, so that one can be exchanged while the other is in use
    (429 limit-reached); expired ones make room. `missing_broker_groups` have not answered; they get
    it as soon as they do, and until then the key works at every proxy that reaches one of the
    others.
    """
    proxy = call.proxy
    settings = await call.read(KeySettings)
    before = await found(proxy.principals, principal)
    kid = "".join(secrets.choice(KID_ALPHABET) for _ in range(KID_LENGTH))
    chance = secrets.token_bytes(SECRET_SIZE_BYTES)
    now_ms = proxy.clock.now_ms()
    key, text = new_key(kid, chance, settings, now_ms)
    change = addition(before, key, now_ms)
    try:
        written = await write(proxy, change)
    except TernError:
        # The key may be stored somewhere, but no client has its text: revoke it.
        await _take_back(proxy, change)
        raise
    made = extended(
        key_state(key, proxy.clock.now_ms()),
        ClientKeyMade,
        principal=principal,
        key=text or UNSET,
        missing_broker_groups=list(written.missing),
    )
    return Answer(made, 201, _SECRET)


async def delete_key(call: Call, principal: str, kid: str) -> None:
    """Revoke a key: every proxy refuses it within 5 s, and it never becomes good again. Repeating
    this is safe.
    """
    before = await found(call.proxy.principals, principal)
    gone = ClientKey(kid=kid, version=dict(before.revoked).get(kid, 0))
    key = next((each for each in before.keys if each.kid == kid), gone)
    if not is_kid(kid) or not key.version:
        raise ClientKeyNotFound(principal=principal, kid=kid[:KID_LENGTH])
    await write_everywhere(call.proxy, revocation(principal, [key]))


async def _take_back(proxy: Proxy, change: PrincipalDocument) -> None:
    try:
        await write(proxy, revocation(change.name, change.keys))
    except TernError:
        # It was not stored anywhere, or remains in the list of keys, where it can be revoked.
        return
