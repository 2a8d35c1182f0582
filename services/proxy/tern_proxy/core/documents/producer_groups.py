"""Documents of producer groups: declared, described and listed."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Count, Cursor, DurationText, shown, span
from tern_wire import limits

_URL = (
    "https, or http to this machine, and to private hosts with `--check-http`; a host that `--check-hosts` of the proxies "
    "allows."
)
_SIGNS = (
    "24 to 64 bytes in base64; with a `check_url`, the proxy makes one if there is none. Checks and answers are signed "
    "with it."
)
_SHOWN_ONCE = (
    "With this, Standard Webhooks verifies what is sent to `check_url`. Only in the answer of the PUT that has set it."
)


def _kept(least_ms: int, most_ms: int, default_ms: int) -> Meta:
    """Return the schema of a time in this range, with its default in a new producer group."""
    return shown(
        f"{least_ms:,} to {most_ms:,} ms, as `500ms`, `10s`, `5m`, or plain milliseconds; {default_ms:,} by default."
    )


_AFTER_MIN_MS, _AFTER_MAX_MS = limits.CHECK_AFTER_MIN_MS, limits.CHECK_AFTER_MAX_MS
_After = DurationText | Annotated[int, span(_AFTER_MIN_MS, _AFTER_MAX_MS)]
CheckAfter = Annotated[_After, _kept(_AFTER_MIN_MS, _AFTER_MAX_MS, limits.CHECK_AFTER_DEFAULT_MS)]
CheckInterval = Annotated[_After, _kept(_AFTER_MIN_MS, _AFTER_MAX_MS, limits.CHECK_INTERVAL_DEFAULT_MS)]
CheckTimeout = Annotated[
    DurationText | Annotated[int, span(limits.CHECK_TIMEOUT_MIN_MS, limits.CHECK_TIMEOUT_MAX_MS)],
    _kept(limits.CHECK_TIMEOUT_MIN_MS, limits.CHECK_TIMEOUT_MAX_MS, limits.CHECK_TIMEOUT_DEFAULT_MS),
]


# Requests -----------------------------------------------------------------------------------------
class ProducerGroupSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/producer-groups/{producer_group}.

    Omitted fields stay as they are, or get their defaults in a new producer group. With an empty
    `check_url` checks are received by pull.
    """

    check_url: Annotated[str, shown(_URL, maxLength=limits.CHECK_URL_SIZE_MAX_BYTES)] | UnsetType = UNSET
    check_secret: (
        Annotated[
            str,
            shown(_SIGNS, maxLength=limits.CHECK_SECRET_SIZE_MAX_BYTES, pattern="^$|^whsec_[A-Za-z0-9+/]+=*$"),
        ]
        | UnsetType
    ) = UNSET
    timeout: CheckTimeout | UnsetType = UNSET
    max_checks: Annotated[int, shown(minimum=1, maximum=limits.CHECKS_MAX)] | UnsetType = UNSET
    check_after: CheckAfter | UnsetType = UNSET
    check_interval: CheckInterval | UnsetType = UNSET
    include_body: bool | UnsetType = UNSET


# Answers ------------------------------------------------------------------------------------------
class ProducerGroupStats(Struct, kw_only=True):
    """Transactions of a producer group, and the number of its checks."""

    open: Count
    expired: Annotated[int, Meta(ge=0, description="Without an answer to `max_checks` checks.")]
    committed: Count
    rolled_back: Count
    checks: Count


class ProducerGroupState(Struct, kw_only=True):
    """Settings of a producer group."""

    producer_group: str
    check_url: Annotated[str, Meta(description="Empty: its producers pull their checks.")]
    has_secret: bool
    timeout_ms: Annotated[int, Meta(description="Longest time of an answer from `check_url`.")]
    max_checks: Annotated[int, Meta(description="Checks of a transaction, sent or due, after which it is expired.")]
    check_after_ms: Annotated[int, Meta(description="From the begin to the first check.")]
    check_interval_ms: Annotated[int, Meta(description="From one check to the next.")]
    include_body: Annotated[bool, Meta(description="Whether a call to `check_url` contains the messages' bodies.")]
    stats: ProducerGroupStats | UnsetType = UNSET


class ProducerGroupDeclared(ProducerGroupState, kw_only=True):
    """A producer group, and whether it is new."""

    created: bool
    check_secret: (
        Annotated[str, Meta(max_length=limits.CHECK_SECRET_SIZE_MAX_BYTES, description=_SHOWN_ONCE)] | UnsetType
    ) = UNSET


class ProducerGroupPage(Struct, kw_only=True):
    """Producer groups in order of their names."""

    producer_groups: Annotated[list[ProducerGroupState], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor
