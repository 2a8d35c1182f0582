"""The HTTP API's data-plane documents: what a message looks like in JSON and MessagePack, in and out.

Input documents refuse unknown fields. Exactly one of `body`, `json`, `body_base64` carries the message in JSON; in MessagePack
`body` is binary. At most one of `delay`, `deliver_at` and `delay_level` says when a message is delivered.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from tern_wire.limits import PACKED_ELEMENTS_MAX

# So long a list or map is refused before its elements are made: in MessagePack, thousands of them fit into a few bytes each.
_BOUNDED = Meta(max_length=PACKED_ELEMENTS_MAX)


class JsonMessage(Struct, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """One message in a JSON or NDJSON batch. `json` is the client's own: it must be JSON and no deeper than JSON_DEPTH_MAX."""

    body: str | None = None
    json: Raw | UnsetType = UNSET
    body_base64: bytes | None = None
    content_type: str = ""
    tag: str = ""
    keys: list[str] = []
    properties: dict[str, str] = {}
    queue: str = ""
    idempotency_key: str = ""
    message_group: str = ""
    delay: str | int | None = None
    deliver_at: str | int | None = None
    delay_level: int | None = None


class JsonBatch(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a JSON batch."""

    messages: list[JsonMessage]


class PackedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """One message in a MessagePack batch."""

    body: bytes
    content_type: str = ""
    tag: str = ""
    keys: Annotated[list[str], _BOUNDED] = []
    properties: Annotated[dict[str, str], _BOUNDED] = {}
    queue: str = ""
    idempotency_key: str = ""
    message_group: str = ""
    delay: str | int | None = None
    deliver_at: str | int | None = None
    delay_level: int | None = None


class PackedBatch(Struct, forbid_unknown_fields=True):
    """The body of a MessagePack batch."""

    messages: Annotated[list[PackedMessage], _BOUNDED]


class JsonTopicMessage(JsonMessage, forbid_unknown_fields=True, gc=False, kw_only=True, omit_defaults=True):
    """One message of a transaction over several topics, in JSON."""

    topic: str


class PackedTopicMessage(PackedMessage, forbid_unknown_fields=True, gc=False, kw_only=True):
    """One message of a transaction over several topics, in MessagePack."""

    topic: str


class JsonTransaction(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /v1/transactions in JSON. All messages become visible together, or none; only the first one may have an
    `idempotency_key`, which stands for all."""

    producer_group: str
    messages: list[JsonTopicMessage]
    check_after: str | int | None = None


class PackedTransaction(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/transactions in MessagePack."""

    producer_group: str
    messages: Annotated[list[PackedTopicMessage], _BOUNDED]
    check_after: str | int | None = None


class TransactionEnd(Struct, forbid_unknown_fields=True):
    """The body of commit and rollback, which may be missing. `reason` is kept with the transaction."""

    reason: str = ""


class TransactionResolution(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/transactions/{transaction_id}/resolve: `outcome` commit or rollback, and the `reason`, which is kept."""

    outcome: str
    reason: str


class ProducerGroupSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/producer-groups/{producer_group}. What is left out stays, or gets its default in a new producer group. An empty
    `check_url` means that checks are received by pull."""

    check_url: str | UnsetType = UNSET
    check_secret: str | UnsetType = UNSET
    timeout: str | int | UnsetType = UNSET
    max_checks: int | UnsetType = UNSET
    check_after: str | int | UnsetType = UNSET
    check_interval: str | int | UnsetType = UNSET
    include_body: bool | UnsetType = UNSET


class GrantSettings(Struct, forbid_unknown_fields=True):
    """What a principal may do, or (`effect` deny) may not: `actions` on the objects of a `kind` whose name is `pattern`, or begins with what
    stands before its `*`. A deny wins over every allow."""

    actions: list[str]
    kind: str
    pattern: str
    effect: str = "allow"


class PrincipalSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/principals/{principal}. What is left out stays, or gets its default in a new principal; `grants` replaces all that it
    has. With `version`, only if it is at that one (0: not there)."""

    description: str | UnsetType = UNSET
    grants: list[GrantSettings] | UnsetType = UNSET
    requests_per_s: int | UnsetType = UNSET
    bytes_per_s: int | UnsetType = UNSET
    version: int | UnsetType = UNSET


class KeySettings(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/principals/{principal}/keys; every field has a default. With a `public_key` (Ed25519, base64url) the principal signs
    its requests with a key that it has made; with `type` `hmac-sha256` it signs them with a secret, without both it gets a bearer key: those are
    in the answer and nowhere else."""

    type: str = ""
    public_key: str = ""
    not_before: str | int | None = None
    expires_at: str | int | None = None
    expires_in: str | int | None = None
    networks: list[str] = []
    description: str = ""


class ChecksRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/producer-groups/{producer_group}/checks/receive; every field has a default."""

    max_messages: int = 16
    wait: str | int = 0


class SettleEntry(Struct, forbid_unknown_fields=True):
    """One settle: `ack`; `extend` with a new `invisible` time counted from now; `nack`, which makes the message visible again after
    `delay`, or after as long as its group's retry policy says; `release`, which makes it visible at once and does not count the attempt, since
    no handler saw it; or `dead_letter` with a `reason`."""

    receipt_handle: str
    action: str = "ack"
    invisible: str | int | None = None
    delay: str | int | None = None
    reason: str | None = None


class SettleRequest(Struct, forbid_unknown_fields=True):
    """The body of settle."""

    entries: Annotated[list[SettleEntry], _BOUNDED]


class AckRequest(Struct, forbid_unknown_fields=True):
    """The body of ack."""

    receipt_handles: Annotated[list[str], _BOUNDED]


class MessageFilter(Struct, forbid_unknown_fields=True):
    """What a receive wants: messages with one of `tags` (`A || B`, or a list of tags), or those whose properties make `sql` true.

    Either has at most 1 KiB and 64 terms: tags, or tests, of which IN has one a value.
    """

    tags: str | list[str] | UnsetType = UNSET
    sql: str | UnsetType = UNSET


class ReceiveRequest(Struct, forbid_unknown_fields=True):
    """The body of receive; every field has a default. `settle` is applied before the wait begins.

    What `filter` drops counts as consumed by the whole group. The same `attempt_id` again (1 to 64 characters) gets the same messages and handles, as long as their leases last.
    """

    max_messages: int = 32
    max_bytes: int = 1024 * 1024
    wait: str | int = 0
    invisible: str | int | None = None
    settle: list[SettleEntry] = []
    attempt_id: str = ""
    filter: MessageFilter | None = None


# What `to` of a redrive says instead of a time: its target is each message's own queue, which is the default and the only target.
TO_ORIGIN = "origin"


class RedriveRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/dlq/redrive: `offsets` (`broker-a:17`), or `all`, or a selection of the others.

    `topic`, `tag`, `reason` (a part of it), `from` and `to` narrow the choice together; `rate` is in messages a second. `"to": "origin"`
    is no time: it names the default target, each message's own queue, and with nothing else that chooses it means all.
    """

    offsets: list[str] | UnsetType = UNSET
    all: bool | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    from_: str | int | UnsetType = field(name="from", default=UNSET)
    to: str | int | UnsetType = UNSET
    rate: int = 0
    dry_run: bool = False


class OffsetsCommit(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/groups/{group}/offsets; keys are queues written `broker-a:3`."""

    topic: str
    offsets: dict[str, int]
    expected: dict[str, int] = {}
    epochs: dict[str, int] = {}


class SeekPlace(Struct, forbid_unknown_fields=True):
    """Where a seek goes, if not to `earliest` or `latest`: exactly one of these. `shift` is a number of messages, backward if negative."""

    time: str | int | UnsetType = UNSET
    shift: int | UnsetType = UNSET
    offsets: dict[str, int] | UnsetType = UNSET


class SeekRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/seek; queues written `broker-a:3`, all of the topic's if none are named."""

    topic: str
    to: str | SeekPlace
    queues: list[str] | None = None
    dry_run: bool = False


class MemberHeartbeat(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/members/heartbeat.

    `subscriptions`: topic -> filter: tags such as `A || B`, `*` for everything, or SQL behind `sql:`. `queues`: topic -> the queues that
    it wants under the strategy `by-config`.
    """

    member: str
    role: str = "consumer"
    subscriptions: dict[str, str] = {}
    strategy: str = "averagely"
    room: str = ""
    queues: dict[str, list[str]] = {}
    address: str = ""
    version: str = ""


class LockRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/locks; queues written `broker-a:3`."""

    topic: str
    member: str
    queues: list[str]


Document = dict[str, Any]
