"""Rows of principals, their keys and grants."""

from tern_proxy.core.documents.principals import (
    AclPage,
    ClientKeyMade,
    ClientKeyState,
    Grant,
    KeySettings,
    PrincipalDeclared,
    PrincipalGrant,
    PrincipalPage,
    PrincipalSettings,
    PrincipalState,
    WhoAmI,
)
from tern_proxy.core.documents.values import GROUP_PATTERN, TOPIC_PATTERN, extended
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, READ, ROUTED
from tern_proxy.routes.lists import CURSOR, LIMIT
from tern_proxy.routes.principals.keys import delete_key, post_key
from tern_proxy.routes.principals.principals import (
    delete_principal,
    get_principal,
    get_whoami,
    list_acls,
    list_principals,
    put_principal,
)
from tern_proxy.routes.route import Gives, Route, gives, in_query, takes
from tern_wire.errors import (
    ClientKeyNotFound,
    DiskFull,
    LimitReached,
    MessageTooLarge,
    PrincipalChanged,
    PrincipalNotFound,
    PrincipalPartlyWritten,
)
from tern_wire.paths import ACLS_PATH, JSON, PRINCIPALS_PATH, WHOAMI_PATH, keys_path, principal_path
from tern_wire.principals.client_keys import BEARER

_KID = "Zk3vQ8mT1xWc5RbN"
_GRANT = Grant(effect="allow", actions=["PUB"], kind="topic", pattern="orders*")
_KEY = ClientKeyState(
    kid=_KID,
    type=BEARER,
    state="active",
    not_before=0,
    expires_at=1_775_001_600_000,
    created_at=1_767_225_600_000,
    networks=["10.0.0.0/8"],
    description="checkout service",
)
# Not a real key: 43 times the same character.
_MADE = extended(_KEY, ClientKeyMade, principal="shop", key=f"mqk_{_KID}_{'A' * 43}", missing_broker_groups=[])
_PRINCIPAL = PrincipalState(
    principal="shop",
    version=3,
    description="the shop's services",
    grants=[_GRANT],
    requests_per_s=0,
    bytes_per_s=0,
    keys=[_KEY],
)
_IS_NEW, _WAS_THERE = (extended(_PRINCIPAL, PrincipalDeclared, created=created) for created in (True, False))
_ME = WhoAmI(principal="shop", authenticated=True, root=False, grants=[_GRANT], requests_per_s=0, bytes_per_s=0)
_ACL = extended(_GRANT, PrincipalGrant, principal="shop")
_WRITTEN = (*BROKER, *ROUTED, DiskFull, PrincipalPartlyWritten)
_ONE, _KEYS = principal_path("{principal}"), keys_path("{principal}")
_SEE, _ADMIN = ("DESCRIBE cluster",), ("ADMIN cluster",)

ROUTES = (
    Route(
        "GET",
        WHOAMI_PATH,
        get_whoami,
        id="getWhoami",
        tag="principals",
        summary="Who am I?",
        gives={200: gives(_ME, "From this proxy's table.")},
        errors=ASKED,
    ),
    Route(
        "GET",
        PRINCIPALS_PATH,
        list_principals,
        id="listPrincipals",
        tag="principals",
        summary="List principals",
        asks=_SEE,
        is_admin=True,
        parameters=(LIMIT, CURSOR, in_query("q", {"type": "string", "maxLength": 128}, "Part of the name.")),
        gives={200: gives(PrincipalPage(principals=[_PRINCIPAL], next_cursor=""), "From the leaders.")},
        errors=ASKED,
        query="?limit=10",
    ),
    Route(
        "PUT",
        _ONE,
        put_principal,
        id="putPrincipal",
        tag="principals",
        summary="Declare a principal",
        asks=_ADMIN,
        is_admin=True,
        takes=takes(
            PrincipalSettings,
            producer={"grants": [{"actions": ["PUB"], "kind": "topic", "pattern": "orders*"}]},
            unless_changed={"requests_per_s": 500, "version": 3},
        ),
        gives={200: gives(_WAS_THERE, "It existed; it has these settings now."), 201: gives(_IS_NEW, "It is new.")},
        errors=(*DECLARED, PrincipalChanged, PrincipalPartlyWritten),
        bodies=((JSON, '{"grants": [{"actions": ["PUB"], "kind": "topic", "pattern": "orders*"}]}'),),
    ),
    Route(
        "GET",
        _ONE,
        get_principal,
        id="getPrincipal",
        tag="principals",
        summary="Describe a principal",
        asks=_SEE,
        is_admin=True,
        gives={200: gives(_PRINCIPAL, "With descriptions of its keys.")},
        errors=(*ASKED, PrincipalNotFound),
    ),
    Route(
        "DELETE",
        _ONE,
        delete_principal,
        id="deletePrincipal",
        tag="principals",
        summary="Delete a principal",
        asks=_ADMIN,
        is_admin=True,
        gives={204: Gives(text="It is deleted with its keys.")},
        errors=(*ASKED, *_WRITTEN, PrincipalNotFound),
    ),
    Route(
        "POST",
        _KEYS,
        post_key,
        id="createKey",
        tag="principals",
        summary="Create a key of a principal",
        asks=_ADMIN,
        is_admin=True,
        takes=takes(
            KeySettings,
            bearer={"expires_in": "90d", "networks": ["10.0.0.0/8"]},
            signing={"public_key": "1" * 42 + "E"},
        ),
        gives={201: gives(_MADE, "The only time that the key is shown.", "Cache-Control")},
        errors=(*ASKED, *READ, *BROKER, *ROUTED, PrincipalNotFound, LimitReached, MessageTooLarge, DiskFull),
        bodies=((JSON, '{"expires_in": "90d"}'),),
    ),
    Route(
        "DELETE",
        keys_path("{principal}", "{kid}"),
        delete_key,
        id="revokeKey",
        tag="principals",
        summary="Revoke a key",
        asks=_ADMIN,
        is_admin=True,
        gives={204: Gives(text="It is revoked permanently.")},
        errors=(*ASKED, *_WRITTEN, PrincipalNotFound, ClientKeyNotFound),
    ),
    Route(
        "GET",
        ACLS_PATH,
        list_acls,
        id="listAcls",
        tag="principals",
        summary="List grants",
        asks=_SEE,
        is_admin=True,
        parameters=(
            LIMIT,
            CURSOR,
            in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Grants that apply to this topic."),
            in_query("group", {"type": "string", "pattern": GROUP_PATTERN}, "Grants that apply to this group."),
            in_query(
                "producer_group",
                {"type": "string", "pattern": GROUP_PATTERN},
                "Grants that apply to this producer group.",
            ),
        ),
        gives={200: gives(AclPage(acls=[_ACL], next_cursor=""), "From the leaders.")},
        errors=ASKED,
        query="?topic=orders",
    ),
)
