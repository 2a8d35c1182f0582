"""Principals, keys and grants in the API document: schemas and operations. Data, imported as late as operations.py."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Cursor
from tern_proxy.core.listing import LISTED_DEFAULT
from tern_proxy.openapi.operations import ASKED, BROKER, DECLARED, READ, Operation, gives, in_query, number, takes
from tern_proxy.openapi.schemas import DURATION_PATTERN, GROUP_PATTERN, TOPIC_PATTERN, Schema
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON
from tern_wire.principals.client_keys import BEARER, HMAC, KEY_TYPES, KID_LENGTH
from tern_wire.principals.documents import QUOTA_MAX
from tern_wire.principals.principals import ACTIONS, ACTIONS_OF, ALL, EFFECTS, KINDS, PRINCIPAL_PATTERN

PrincipalName = Annotated[str, Meta(pattern=f"^{PRINCIPAL_PATTERN}$")]
Kid = Annotated[str, Meta(pattern=f"^[A-Za-z0-9]{{{KID_LENGTH}}}$", description="The key's name, which is no secret.")]
PublicKey = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$", description="32 bytes of Ed25519, base64url.")]
Pattern = Annotated[str, Meta(description="A name, or the begin of names and `*`.", max_length=128)]
Quota = Annotated[int, Meta(ge=0, le=QUOTA_MAX, description="At each proxy; 0: unlimited.")]
Moment = Annotated[int, Meta(ge=0, description="Ms since 1970 (UTC); 0: none.")]


class Grant(Struct, kw_only=True):
    """What a principal may do, or may not. A deny wins over every allow."""

    effect: Annotated[str, Meta(extra_json_schema={"enum": list(EFFECTS)})]
    actions: Annotated[list[str], Meta(min_length=1)]
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})]
    pattern: Pattern


class ClientKeyState(Struct, kw_only=True):
    """What is known of a key; never the key."""

    kid: Kid
    type: Annotated[str, Meta(extra_json_schema={"enum": list(KEY_TYPES)})]
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "not-yet", "expired"]})]
    not_before: Moment
    expires_at: Moment
    created_at: Moment
    networks: Annotated[list[str], Meta(description="It is good from there only; none: from anywhere.")]
    description: str
    public_key: PublicKey | UnsetType = UNSET


class ClientKeyMade(ClientKeyState, kw_only=True):
    """A new key."""

    principal: PrincipalName
    key: (
        Annotated[
            str,
            Meta(pattern="^mq[kh]_[A-Za-z0-9]{16}_[A-Za-z0-9_-]{43}$", description="The bearer or HMAC key. Keep it."),
        ]
        | UnsetType
    ) = UNSET
    missing_broker_groups: Annotated[list[str], Meta(description="Did not answer, and get it as soon as they do.")]


class PrincipalState(Struct, kw_only=True):
    """A principal."""

    principal: PrincipalName
    version: Annotated[int, Meta(ge=0, description="Grows with every change of its settings.")]
    description: str
    grants: Annotated[list[Grant], Meta(max_length=limits.GRANTS_PER_PRINCIPAL_MAX)]
    requests_per_s: Quota
    bytes_per_s: Quota
    keys: Annotated[list[ClientKeyState], Meta(max_length=limits.KEYS_KEPT_MAX)]


class PrincipalDeclared(PrincipalState, kw_only=True):
    """A principal, and whether it is new."""

    created: bool


class PrincipalPage(Struct, kw_only=True):
    """Principals in order of their names."""

    principals: Annotated[list[PrincipalState], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class WhoAmI(Struct, kw_only=True):
    """Who asks."""

    principal: Annotated[str, Meta(description="Empty where credentials are not required.")]
    authenticated: bool
    root: bool
    grants: list[Grant]
    requests_per_s: Quota
    bytes_per_s: Quota


class PrincipalGrant(Grant, kw_only=True):
    """A grant and whose it is."""

    principal: PrincipalName


class AclPage(Struct, kw_only=True):
    """Grants in order of their principals."""

    acls: Annotated[list[PrincipalGrant], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


ANSWERS: tuple[type[Struct], ...] = (PrincipalDeclared, PrincipalPage, ClientKeyMade, WhoAmI, AclPage)
REQUESTS: tuple[type[Struct], ...] = (messages.PrincipalSettings, messages.KeySettings)


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it."""
    quota = {"minimum": 0, "maximum": QUOTA_MAX, "description": "At each proxy; 0: unlimited."}
    moment = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
    shown = "; ".join(f"{kind}: {', '.join(sorted(actions))}" for kind, actions in ACTIONS_OF.items())
    return {
        "GrantSettings": {
            "actions": {
                "items": {"type": "string", "enum": [*ACTIONS, ALL]},
                "minItems": 1,
                "maxItems": len(ACTIONS),
                "description": f"{ALL}, or some of those of the kind. {shown}.",
            },
            "kind": {"enum": list(KINDS)},
            "pattern": {
                "pattern": r"^[A-Za-z0-9_%-]{0,127}\*?$",
                "minLength": 1,
                "description": "A name, or the begin of names and `*`; of the cluster `*`.",
            },
            "effect": {"enum": list(EFFECTS)},
        },
        "PrincipalSettings": {
            "description": {"maxLength": limits.PRINCIPAL_TEXT_LENGTH_MAX},
            "grants": {"maxItems": limits.GRANTS_PER_PRINCIPAL_MAX},
            "requests_per_s": quota,
            "bytes_per_s": quota,
            "version": {"minimum": 0, "description": "Only if it is at this version; 0: only if it is not there."},
        },
        "KeySettings": {
            "type": {
                "enum": ["", *KEY_TYPES],
                "description": "Empty: `ed25519` with a `public_key`, else `bearer`. `hmac-sha256`: a secret that signs requests.",
            },
            "public_key": {"pattern": "^$|^[A-Za-z0-9_-]{43}$"},
            "not_before": {**moment, "description": "Good from then on; at once."},
            "expires_at": {**moment, "description": "Good until then; for ever."},
            "expires_in": {
                "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "integer", "minimum": 1}],
                "description": "Instead of `expires_at`, such as `90d`.",
            },
            "networks": {
                "maxItems": limits.KEY_NETWORKS_MAX,
                "description": "Good from there only, such as `10.0.0.0/8`; an empty list: from anywhere.",
            },
            "description": {"maxLength": limits.PRINCIPAL_TEXT_LENGTH_MAX},
        },
    }


# Operations -------------------------------------------------------------------------------------------------------
EXAMPLE_KID = "Zk3vQ8mT1xWc5RbN"
_GRANT = {"effect": "allow", "actions": ["PUB"], "kind": "topic", "pattern": "orders*"}
_KEY: dict[str, Any] = {
    "kid": EXAMPLE_KID,
    "type": BEARER,
    "state": "active",
    "not_before": 0,
    "expires_at": 1_775_001_600_000,
    "created_at": 1_767_225_600_000,
    "networks": ["10.0.0.0/8"],
    "description": "checkout service",
}
_PRINCIPAL: dict[str, Any] = {
    "principal": "shop",
    "version": 3,
    "description": "the shop's services",
    "grants": [_GRANT],
    "requests_per_s": 0,
    "bytes_per_s": 0,
    "keys": [_KEY],
}
# Never a key of anything: 43 times the same character.
_MADE = {**_KEY, "principal": "shop", "key": f"mqk_{EXAMPLE_KID}_{'A' * 43}", "missing_broker_groups": []}
_ME = {
    "principal": "shop",
    "authenticated": True,
    "root": False,
    "grants": [_GRANT],
    "requests_per_s": 0,
    "bytes_per_s": 0,
}
_WRITTEN = (*BROKER, "no-name-server", "warming-up", "disk-full", "principal-partly-written")
_PAGES = (
    number("limit", 1, limits.LISTED_MAX, LISTED_DEFAULT, "Rows on a page."),
    in_query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
)

PRINCIPALS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.WHOAMI_PATH,
        id="getWhoami",
        summary="Who am I?",
        answers={200: gives(WhoAmI, "As this proxy knows it.", _ME)},
        errors=ASKED,
    ),
    Operation(
        method="GET",
        path=paths.PRINCIPALS_PATH,
        id="listPrincipals",
        summary="List principals",
        parameters=(*_PAGES, in_query("q", {"type": "string", "maxLength": 128}, "Part of the name.")),
        answers={
            200: gives(PrincipalPage, "As the leaders know them.", {"principals": [_PRINCIPAL], "next_cursor": ""})
        },
        errors=ASKED,
        query="?limit=10",
    ),
    Operation(
        method="PUT",
        path=paths.principal_path("{principal}"),
        id="putPrincipal",
        summary="Declare a principal",
        body=takes(
            messages.PrincipalSettings,
            producer={"grants": [{"actions": ["PUB"], "kind": "topic", "pattern": "orders*"}]},
            unless_changed={"requests_per_s": 500, "version": 3},
        ),
        answers={
            200: gives(PrincipalDeclared, "It was there; it is so now.", {**_PRINCIPAL, "created": False}),
            201: gives(PrincipalDeclared, "It is new.", {**_PRINCIPAL, "created": True}),
        },
        errors=(*DECLARED, "principal-changed", "principal-partly-written"),
        bodies=((JSON, '{"grants": [{"actions": ["PUB"], "kind": "topic", "pattern": "orders*"}]}'),),
    ),
    Operation(
        method="GET",
        path=paths.principal_path("{principal}"),
        id="getPrincipal",
        summary="Describe a principal",
        answers={200: gives(PrincipalState, "With what is known of its keys.", _PRINCIPAL)},
        errors=(*ASKED, "principal-not-found"),
    ),
    Operation(
        method="DELETE",
        path=paths.principal_path("{principal}"),
        id="deletePrincipal",
        summary="Delete a principal",
        answers={204: {"description": "It is gone, and so are its keys."}},
        errors=(*ASKED, *_WRITTEN, "principal-not-found"),
    ),
    Operation(
        method="POST",
        path=paths.keys_path("{principal}"),
        id="createKey",
        summary="Give a principal a key",
        body=takes(
            messages.KeySettings,
            bearer={"expires_in": "90d", "networks": ["10.0.0.0/8"]},
            signing={"public_key": "1" * 42 + "E"},
            signing_with_a_secret={"type": HMAC},
        ),
        answers={201: gives(ClientKeyMade, "The only time that the key is shown.", _MADE, "Cache-Control")},
        errors=(
            *(*ASKED, *READ, *BROKER, "principal-not-found", "limit-reached", "message-too-large", "no-name-server"),
            *("warming-up", "disk-full", "cluster-key-missing"),
        ),
        bodies=((JSON, '{"expires_in": "90d"}'),),
    ),
    Operation(
        method="DELETE",
        path=paths.keys_path("{principal}", "{kid}"),
        id="revokeKey",
        summary="Revoke a key",
        answers={204: {"description": "It is revoked for good."}},
        errors=(*ASKED, *_WRITTEN, "principal-not-found", "client-key-not-found"),
    ),
    Operation(
        method="GET",
        path=paths.ACLS_PATH,
        id="listAcls",
        summary="Who may do what?",
        parameters=(
            *_PAGES,
            in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Grants that speak of this topic."),
            in_query("group", {"type": "string", "pattern": GROUP_PATTERN}, "Grants that speak of this group."),
            in_query(
                "producer_group",
                {"type": "string", "pattern": GROUP_PATTERN},
                "Grants that speak of this producer group.",
            ),
        ),
        answers={
            200: gives(
                AclPage,
                "As the leaders know them.",
                {"acls": [{"principal": "shop", **_GRANT}], "next_cursor": ""},
            )
        },
        errors=ASKED,
        query="?topic=orders",
    ),
)
