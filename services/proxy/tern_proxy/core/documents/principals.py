"""Documents of principals, their keys and their grants: declared, described and listed."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Cursor, DurationText, shown, words
from tern_wire import limits
from tern_wire.principals.client_keys import HMAC, KEY_TYPES, KID_LENGTH, NOT_ACCEPTED
from tern_wire.principals.documents import QUOTA_MAX
from tern_wire.principals.principals import ACTIONS, ACTIONS_OF, ALL, EFFECTS, KINDS, PRINCIPAL_PATTERN

_AT_EACH_PROXY = "At each proxy; 0: unlimited."
_ACTIONS = "; ".join(f"{kind}: {', '.join(sorted(actions))}" for kind, actions in ACTIONS_OF.items())
_KEY_TYPE = "Empty: `ed25519` with a `public_key`, else `bearer`."
Effect = Annotated[str, words(*EFFECTS)]
Kind = Annotated[str, words(*KINDS)]


# Requests -----------------------------------------------------------------------------------------
_Quota = Annotated[int, shown(_AT_EACH_PROXY, minimum=0, maximum=QUOTA_MAX)]
_Text = Annotated[str, shown(maxLength=limits.PRINCIPAL_TEXT_LENGTH_MAX)]
_Moment = Annotated[int, shown(minimum=0)] | Annotated[str, shown(format="date-time")] | None
_Duration = DurationText | Annotated[int, shown(minimum=1)] | None


class GrantSettings(Struct, forbid_unknown_fields=True):
    """What a principal may do, or (`effect` deny) may not: `actions` on the objects of a `kind`
    whose name is `pattern`, or begins with what stands before its `*`. A deny wins over every
    allow.
    """

    actions: Annotated[
        list[Annotated[str, words(*ACTIONS, ALL)]],
        shown(f"{ALL}, or some of those of the kind. {_ACTIONS}.", minItems=1, maxItems=len(ACTIONS)),
    ]
    kind: Kind
    pattern: Annotated[
        str,
        shown(
            "A name, or a prefix of names and `*`; for the cluster `*`.",
            pattern=r"^[A-Za-z0-9_%-]{0,127}\*?$",
            minLength=1,
        ),
    ]
    effect: Effect = "allow"


class PrincipalSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/principals/{principal}. What is left out stays, or gets its default in a
    new principal; `grants` replaces all that it has. With `version`, only if it is at that one (0:
    not there).
    """

    description: _Text | UnsetType = UNSET
    grants: Annotated[list[GrantSettings], shown(maxItems=limits.GRANTS_PER_PRINCIPAL_MAX)] | UnsetType = UNSET
    requests_per_s: _Quota | UnsetType = UNSET
    bytes_per_s: _Quota | UnsetType = UNSET
    version: (
        Annotated[int, shown("Only if it is at this version; 0: only if it does not exist.", minimum=0)] | UnsetType
    ) = UNSET


class KeySettings(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/principals/{principal}/keys; every field has a default. With a
    `public_key` (Ed25519, base64url) the principal signs its requests with a key that it has made.
    Without one it gets a bearer key, which is in the answer and nowhere else.
    """

    type: Annotated[str, words("", *KEY_TYPES, text=_KEY_TYPE)] = ""
    public_key: Annotated[str, shown(pattern="^$|^[A-Za-z0-9_-]{43}$")] = ""
    not_before: Annotated[_Moment, shown("Begin of its validity; by default at once.")] = None
    expires_at: Annotated[_Moment, shown("End of its validity; by default none.")] = None
    expires_in: Annotated[_Duration, shown("Instead of `expires_at`, such as `90d`.")] = None
    networks: Annotated[
        list[str],
        shown(
            "Valid only from these networks, such as `10.0.0.0/8`; an empty list: from anywhere.",
            maxItems=limits.KEY_NETWORKS_MAX,
        ),
    ] = []
    description: _Text = ""


# Answers ------------------------------------------------------------------------------------------
PrincipalName = Annotated[str, Meta(pattern=f"^{PRINCIPAL_PATTERN}$")]
Kid = Annotated[str, Meta(pattern=f"^[A-Za-z0-9]{{{KID_LENGTH}}}$", description="The key's name, which is not secret.")]
PublicKey = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$", description="32 bytes of Ed25519, base64url.")]
KeyText = Annotated[
    str, Meta(pattern="^mqk_[A-Za-z0-9]{16}_[A-Za-z0-9_-]{43}$", description="The bearer key. Keep it.")
]
Pattern = Annotated[str, Meta(description="A name, or a prefix of names and `*`.", max_length=128)]
Quota = Annotated[int, Meta(ge=0, le=QUOTA_MAX, description=_AT_EACH_PROXY)]
Moment = Annotated[int, Meta(ge=0, description="Ms since 1970 (UTC); 0: none.")]


class Grant(Struct, kw_only=True):
    """A permission of a principal, or a prohibition. A deny overrides every allow."""

    effect: Effect
    actions: Annotated[list[str], Meta(min_length=1)]
    kind: Kind
    pattern: Pattern


class ClientKeyState(Struct, kw_only=True):
    """Description of a key, without the key itself."""

    kid: Kid
    type: Annotated[str, words(*KEY_TYPES, HMAC, text=f"`{HMAC}`: of an earlier build, `{NOT_ACCEPTED}`.")]
    state: Annotated[str, words("active", "not-yet", "expired", NOT_ACCEPTED)]
    not_before: Moment
    expires_at: Moment
    created_at: Moment
    networks: Annotated[list[str], Meta(description="Valid only from these networks; an empty list: from anywhere.")]
    description: str
    public_key: PublicKey | UnsetType = UNSET


class ClientKeyMade(ClientKeyState, kw_only=True):
    """A new key."""

    principal: PrincipalName
    key: KeyText | UnsetType = UNSET
    missing_broker_groups: Annotated[
        list[str], Meta(description="Did not answer; they get the key as soon as they do.")
    ]


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
    """The caller."""

    principal: Annotated[str, Meta(description="Empty where credentials are not required.")]
    authenticated: bool
    root: bool
    grants: list[Grant]
    requests_per_s: Quota
    bytes_per_s: Quota


class PrincipalGrant(Grant, kw_only=True):
    """A grant and its principal."""

    principal: PrincipalName


class AclPage(Struct, kw_only=True):
    """Grants in order of their principals."""

    acls: Annotated[list[PrincipalGrant], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor
