"""URL paths, header names, media types and default ports, shared by client and services."""

PORT_NAMESRV = 9876
PORT_BROKER_LINK = 10911
PORT_BROKER_RAFT = 10912
PORT_BROKER_HTTP = 10913
PORT_PROXY = 8080
PORT_TXN_CHECKER = 8090

JSON = "application/json"
NDJSON = "application/x-ndjson"
# Server-sent events (WHATWG HTML, 9.2).
EVENT_STREAM = "text/event-stream"
JSONL = "application/jsonl"
MSGPACK = "application/vnd.msgpack"
OCTETS = "application/octet-stream"
PROBLEM = "application/problem+json"
# Concatenated records in RocketMQ's layout with queue offset and position filled in.
RECORDS = "application/vnd.ternmq.records"

HEADER_TAG = "MQ-Tag"
HEADER_KEY = "MQ-Key"
HEADER_QUEUE = "MQ-Queue"
HEADER_MESSAGE_GROUP = "MQ-Message-Group"
HEADER_DELAY = "MQ-Delay"
HEADER_DELIVER_AT = "MQ-Deliver-At"
HEADER_DELAY_LEVEL = "MQ-Delay-Level"
HEADER_CONTENT_ENCODING = "MQ-Content-Encoding"
HEADER_PROPERTIES = "MQ-Properties"
HEADER_PROPERTY_PREFIX = "MQ-Property-"
HEADER_IDEMPOTENCY_KEY = "Idempotency-Key"
HEADER_PRODUCER_GROUP = "MQ-Producer-Group"
HEADER_CHECK_AFTER = "MQ-Check-After"
# Headers of a transaction callback and of its answer: see checks/answers.py.
HEADER_CHECK_NONCE = "MQ-Check-Nonce"
HEADER_CHECK_SIGNATURE = "MQ-Check-Signature"
HEADER_TIMEOUT = "MQ-Timeout"
HEADER_CORRELATION_ID = "MQ-Correlation-Id"
HEADER_CLIENT = "MQ-Client"
HEADER_REPLY_TO = "MQ-Reply-To"
HEADER_REPLAYED = "Idempotency-Replayed"
HEADER_REQUEST_ID = "MQ-Request-Id"
# Namespace of the topics and groups in a request (`names.py`).
HEADER_NAMESPACE = "MQ-Namespace"
# The id of the last event that a client of a stream has seen.
HEADER_LAST_EVENT_ID = "Last-Event-ID"
HEADER_WAIT_APPLIED = "MQ-Wait-Applied"
HEADER_NEXT_OFFSET = "MQ-Next-Offset"
HEADER_MIN_OFFSET = "MQ-Min-Offset"
HEADER_MAX_OFFSET = "MQ-Max-Offset"
# Between nodes of a broker group: the proof of membership (`peer_proof.py`), and the CRC-32 of a
# chunk as eight hex digits.
HEADER_PEER_PROOF = "MQ-Peer-Proof"
HEADER_CRC32 = "MQ-Crc32"


def topic_path(topic: str) -> str:
    """PUT declares the topic."""
    return f"/v1/topics/{topic}"


def messages_path(topic: str) -> str:
    """POST sends one message, which is the body."""
    return f"/v1/topics/{topic}/messages"


def batch_path(topic: str) -> str:
    """POST sends many messages as JSON, NDJSON or MessagePack."""
    return f"/v1/topics/{topic}/messages/batch"


def scheduled_path(topic: str, recall_handle: str = "") -> str:
    """GET lists the messages of a topic that wait for their delivery time; with a recall handle,
    DELETE recalls one.
    """
    return f"/v1/topics/{topic}/scheduled/{recall_handle}" if recall_handle else f"/v1/topics/{topic}/scheduled"


def requests_path(topic: str, correlation_id: str = "") -> str:
    """POST sends a message and waits for its reply; with a correlation id (quoted by the caller),
    GET returns that reply.
    """
    return f"/v1/topics/{topic}/requests/{correlation_id}" if correlation_id else f"/v1/topics/{topic}/requests"


def replies_path(topic: str) -> str:
    """POST sends the reply to a request that was received from the topic."""
    return f"/v1/topics/{topic}/replies"


def begin_path(topic: str) -> str:
    """POST begins a transaction with one message, which is the body and stays invisible until the
    commit.
    """
    return f"/v1/topics/{topic}/transactions"


def transaction_path(transaction_id: str, verb: str = "") -> str:
    """GET returns a transaction; with `commit`, `rollback` or `resolve`, POST ends it."""
    return f"{TRANSACTIONS_PATH}/{transaction_id}/{verb}" if verb else f"{TRANSACTIONS_PATH}/{transaction_id}"


def producer_group_path(producer_group: str) -> str:
    """PUT declares the producer group."""
    return f"{PRODUCER_GROUPS_PATH}/{producer_group}"


def checks_path(producer_group: str) -> str:
    """POST receives checks of open transactions."""
    return f"{PRODUCER_GROUPS_PATH}/{producer_group}/checks/receive"


def principal_path(principal: str) -> str:
    """PUT declares the principal."""
    return f"{PRINCIPALS_PATH}/{principal}"


def keys_path(principal: str, kid: str = "") -> str:
    """POST creates a key of the principal; with a *kid*, DELETE revokes that key."""
    return f"{PRINCIPALS_PATH}/{principal}/keys/{kid}" if kid else f"{PRINCIPALS_PATH}/{principal}/keys"


def receive_path(topic: str, group: str) -> str:
    """POST receives messages under a lease."""
    return f"/v1/topics/{topic}/groups/{group}/receive"


def ack_path(topic: str, group: str) -> str:
    """POST acknowledges receipt handles."""
    return f"/v1/topics/{topic}/groups/{group}/ack"


def settle_path(topic: str, group: str) -> str:
    """POST settles receipt handles: acks and extensions together."""
    return f"/v1/topics/{topic}/groups/{group}/settle"


def pull_path(topic: str, queue: str) -> str:
    """GET returns messages of one queue by offset."""
    return f"/v1/topics/{topic}/queues/{queue}/messages"


def tail_path(topic: str) -> str:
    """GET streams the messages of a topic as they come."""
    return f"/v1/topics/{topic}/tail"


def offsets_path(topic: str) -> str:
    """GET returns the minimum and maximum offset of every queue."""
    return f"/v1/topics/{topic}/offsets"


def group_path(group: str) -> str:
    """PUT declares the consumer group."""
    return f"/v1/groups/{group}"


def group_offsets_path(group: str) -> str:
    """GET and PUT the committed offsets."""
    return f"/v1/groups/{group}/offsets"


def members_path(group: str) -> str:
    """GET lists the members of a group."""
    return f"/v1/groups/{group}/members"


def heartbeat_path(group: str) -> str:
    """POST sends a member's heartbeat, every 30 s."""
    return f"/v1/groups/{group}/members/heartbeat"


def member_path(group: str, member: str) -> str:
    """DELETE removes a leaving member. The caller quotes its id."""
    return f"/v1/groups/{group}/members/{member}"


def assignments_path(group: str) -> str:
    """GET returns the assignment of a topic's queues to members."""
    return f"/v1/groups/{group}/assignments"


def locks_path(group: str) -> str:
    """GET, POST and DELETE locks of queues."""
    return f"/v1/groups/{group}/locks"


def seek_path(group: str) -> str:
    """POST moves the offsets of a group."""
    return f"/v1/groups/{group}/seek"


def message_path(topic: str, message_id: str) -> str:
    """GET returns one message. The caller quotes the id."""
    return f"/v1/topics/{topic}/messages/{message_id}"


def trace_path(message_id: str) -> str:
    """GET returns the position of one message in each group. The caller quotes the id."""
    return f"/v1/messages/{message_id}/trace"


def topic_stats_path(topic: str) -> str:
    """GET returns the statistics of a topic."""
    return f"/v1/topics/{topic}/stats"


def lag_path(group: str) -> str:
    """GET returns the lag of a group."""
    return f"/v1/groups/{group}/lag"


def dead_letters_path(group: str) -> str:
    """GET lists the group's dead letters, DELETE purges them."""
    return f"/v1/groups/{group}/dlq"


def redrive_path(group: str) -> str:
    """POST delivers dead letters to their group again."""
    return f"/v1/groups/{group}/dlq/redrive"


def task_path(task: str) -> str:
    """GET returns the progress of a task, DELETE cancels it."""
    return f"/v1/tasks/{task}"


def read_lease_path(lease: str) -> str:
    """PUT renews the read lease, DELETE ends it."""
    return f"{READ_LEASES_PATH}/{lease}"


def staged_path(topic: str, query: str, batch: str, partition: str, attempt: str, chunk: str) -> str:
    """PUT stages one chunk of a batch; the caller quotes the query."""
    return f"/v1/topics/{topic}/staged/{query}/{batch}/{partition}/{attempt}/{chunk}"


def publication_path(query: str, batch: str = "") -> str:
    """GET describes a query that publishes batches; with a batch, POST publishes and DELETE
    abandons it. The caller quotes the query.
    """
    one = f"{PUBLICATIONS_PATH}/{query}"
    return f"{one}/batches/{batch}" if batch else one


def placement_path(topic: str) -> str:
    """GET and PUT the broker groups that take a topic's keyed and ordered messages."""
    return f"/v1/topics/{topic}/placement"


def problem_path(code: str) -> str:
    """GET explains an error; the `type` of a problem document is this path."""
    return f"{PROBLEMS_PATH}/{code}"


def broker_group_path(broker_group: str) -> str:
    """GET returns the unread remainder of a broker group. The caller quotes the name."""
    return f"/v1/broker-groups/{broker_group}"


def broker_group_topics_path(broker_group: str) -> str:
    """GET lists the topics that a broker group hosts, or those that it lacks."""
    return f"/v1/broker-groups/{broker_group}/topics"


def join_path(broker_group: str) -> str:
    """POST declares in a broker group the consumer groups of the other broker groups."""
    return f"/v1/broker-groups/{broker_group}/join"


CLUSTER_PATH = "/v1/cluster"
# POST plans a read of any number of topics.
READ_PLAN_PATH = "/v1/reads/plan"
# POST takes a read lease, GET lists them.
READ_LEASES_PATH = "/v1/read-leases"
# GET lists the queries that publish batches.
PUBLICATIONS_PATH = "/v1/publications"
# Value of `to` in a redrive instead of a time: each message's own queue, the default and only
# target.
TO_ORIGIN = "origin"
PROBLEMS_PATH = "/problems"
DOCS_PATH = "/docs"
TOPICS_PATH, GROUPS_PATH = "/v1/topics", "/v1/groups"
TRANSACTIONS_PATH, PRODUCER_GROUPS_PATH = "/v1/transactions", "/v1/producer-groups"
PRINCIPALS_PATH, ACLS_PATH, WHOAMI_PATH = "/v1/principals", "/v1/acls", "/v1/whoami"
# Transaction checker.
CHECKER_PATH = "/v1/checker"
# Broker.
BROKER_PATH = "/v1/broker"
REBUILD_MANIFEST_PATH = "/v1/broker/rebuild/manifest"
REBUILD_FILES_PATH = "/v1/broker/rebuild/files"
# Name server.
REGISTER_PATH = "/v1/brokers/register"
UNREGISTER_PATH = "/v1/brokers/unregister"
ROUTES_PATH = "/v1/routes"
KV_PATH = "/v1/kv"


def topic_route_path(topic: str) -> str:
    """GET returns the route of one topic."""
    return f"/v1/topics/{topic}/route"


def kv_path(namespace: str, key: str = "") -> str:
    """GET, PUT and DELETE one configuration value; without *key*, GET returns the namespace. The
    caller quotes the names.
    """
    return f"{KV_PATH}/{namespace}/{key}" if key else f"{KV_PATH}/{namespace}"


def write_permission_path(broker_group: str) -> str:
    """POST withdraws or restores a broker group's write permission."""
    return f"/v1/broker-groups/{broker_group}/write-permission"
