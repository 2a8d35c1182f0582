"""URL paths, header names, media types and default ports, shared by client and services."""

PORT_NAMESRV = 9876
PORT_BROKER_LINK = 10911
PORT_BROKER_RAFT = 10912
PORT_BROKER_HTTP = 10913
PORT_PROXY = 8080
PORT_TXN_CHECKER = 8090

JSON = "application/json"
NDJSON = "application/x-ndjson"
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
HEADER_PROPERTIES = "MQ-Properties"
HEADER_PROPERTY_PREFIX = "MQ-Property-"
HEADER_IDEMPOTENCY_KEY = "Idempotency-Key"
HEADER_PRODUCER_GROUP = "MQ-Producer-Group"
HEADER_CHECK_AFTER = "MQ-Check-After"
# Of a callback about a transaction, and of the answer to it: see checks/answers.py.
HEADER_CHECK_NONCE = "MQ-Check-Nonce"
HEADER_CHECK_SIGNATURE = "MQ-Check-Signature"
HEADER_TIMEOUT = "MQ-Timeout"
HEADER_CORRELATION_ID = "MQ-Correlation-Id"
HEADER_CLIENT = "MQ-Client"
HEADER_REPLY_TO = "MQ-Reply-To"
HEADER_REPLAYED = "Idempotency-Replayed"
HEADER_REQUEST_ID = "MQ-Request-Id"
# Whose topics and groups a request speaks of (`names.py`).
HEADER_NAMESPACE = "MQ-Namespace"
HEADER_WAIT_APPLIED = "MQ-Wait-Applied"
HEADER_NEXT_OFFSET = "MQ-Next-Offset"
HEADER_MIN_OFFSET = "MQ-Min-Offset"
HEADER_MAX_OFFSET = "MQ-Max-Offset"
# Between nodes of a broker group: who asks (`peer_proof.py`), and the CRC-32 of a piece, eight hex digits.
HEADER_PEER_PROOF = "MQ-Peer-Proof"
HEADER_CRC32 = "MQ-Crc32"


def topic_path(topic: str) -> str:
    """PUT to declare the topic."""
    return f"/v1/topics/{topic}"


def messages_path(topic: str) -> str:
    """POST one message: the body is the message."""
    return f"/v1/topics/{topic}/messages"


def batch_path(topic: str) -> str:
    """POST many messages: JSON, NDJSON or MessagePack."""
    return f"/v1/topics/{topic}/messages/batch"


def scheduled_path(topic: str, recall_handle: str = "") -> str:
    """GET the messages of a topic that wait for their delivery time; with a recall handle DELETE one of them."""
    return f"/v1/topics/{topic}/scheduled/{recall_handle}" if recall_handle else f"/v1/topics/{topic}/scheduled"


def requests_path(topic: str, correlation_id: str = "") -> str:
    """POST a message and wait for the reply to it; with a correlation id (quoted by the caller) GET that reply."""
    return f"/v1/topics/{topic}/requests/{correlation_id}" if correlation_id else f"/v1/topics/{topic}/requests"


def replies_path(topic: str) -> str:
    """POST the reply to a request that was received from the topic."""
    return f"/v1/topics/{topic}/replies"


def begin_path(topic: str) -> str:
    """POST one message of a transaction: the body is the message, invisible until the commit."""
    return f"/v1/topics/{topic}/transactions"


def transaction_path(transaction_id: str, verb: str = "") -> str:
    """GET a transaction; with `commit`, `rollback` or `resolve` POST its end."""
    return f"{TRANSACTIONS_PATH}/{transaction_id}/{verb}" if verb else f"{TRANSACTIONS_PATH}/{transaction_id}"


def producer_group_path(producer_group: str) -> str:
    """PUT to declare the producer group."""
    return f"{PRODUCER_GROUPS_PATH}/{producer_group}"


def checks_path(producer_group: str) -> str:
    """POST to receive questions about open transactions."""
    return f"{PRODUCER_GROUPS_PATH}/{producer_group}/checks/receive"


def principal_path(principal: str) -> str:
    """PUT to declare the principal."""
    return f"{PRINCIPALS_PATH}/{principal}"


def keys_path(principal: str, kid: str = "") -> str:
    """POST to give the principal a key; with a *kid* DELETE to revoke that one."""
    return f"{PRINCIPALS_PATH}/{principal}/keys/{kid}" if kid else f"{PRINCIPALS_PATH}/{principal}/keys"


def receive_path(topic: str, group: str) -> str:
    """POST to receive with a lease."""
    return f"/v1/topics/{topic}/groups/{group}/receive"


def ack_path(topic: str, group: str) -> str:
    """POST receipt handles to acknowledge."""
    return f"/v1/topics/{topic}/groups/{group}/ack"


def settle_path(topic: str, group: str) -> str:
    """POST acks and extensions together."""
    return f"/v1/topics/{topic}/groups/{group}/settle"


def pull_path(topic: str, queue: str) -> str:
    """GET messages of one queue by offset."""
    return f"/v1/topics/{topic}/queues/{queue}/messages"


def offsets_path(topic: str) -> str:
    """GET min and max offset of every queue."""
    return f"/v1/topics/{topic}/offsets"


def group_path(group: str) -> str:
    """PUT to declare the group."""
    return f"/v1/groups/{group}"


def group_offsets_path(group: str) -> str:
    """GET and PUT committed offsets."""
    return f"/v1/groups/{group}/offsets"


def members_path(group: str) -> str:
    """GET the members of a group."""
    return f"/v1/groups/{group}/members"


def heartbeat_path(group: str) -> str:
    """POST what a member says of itself, every 30 s."""
    return f"/v1/groups/{group}/members/heartbeat"


def member_path(group: str, member: str) -> str:
    """DELETE a member that goes. Its id is quoted by the caller."""
    return f"/v1/groups/{group}/members/{member}"


def assignments_path(group: str) -> str:
    """GET which member reads which queues of a topic."""
    return f"/v1/groups/{group}/assignments"


def locks_path(group: str) -> str:
    """GET, POST and DELETE locks of queues."""
    return f"/v1/groups/{group}/locks"


def seek_path(group: str) -> str:
    """POST to move a group to another place."""
    return f"/v1/groups/{group}/seek"


def message_path(topic: str, message_id: str) -> str:
    """GET one message. The id is quoted by the caller."""
    return f"/v1/topics/{topic}/messages/{message_id}"


def trace_path(message_id: str) -> str:
    """GET where one message is for each group. The id is quoted by the caller."""
    return f"/v1/messages/{message_id}/trace"


def topic_stats_path(topic: str) -> str:
    """GET numbers of a topic."""
    return f"/v1/topics/{topic}/stats"


def lag_path(group: str) -> str:
    """GET how far a group is behind."""
    return f"/v1/groups/{group}/lag"


def dead_letters_path(group: str) -> str:
    """GET the group's dead letters, DELETE to purge them."""
    return f"/v1/groups/{group}/dlq"


def redrive_path(group: str) -> str:
    """POST to deliver dead letters to their group again."""
    return f"/v1/groups/{group}/dlq/redrive"


def task_path(task: str) -> str:
    """GET how a task is going, DELETE to cancel it."""
    return f"/v1/tasks/{task}"


def placement_path(topic: str) -> str:
    """GET and PUT in which broker groups a topic's keyed and ordered messages go."""
    return f"/v1/topics/{topic}/placement"


def problem_path(code: str) -> str:
    """The explanation of an error, to which the `type` of a problem leads."""
    return f"{PROBLEMS_PATH}/{code}"


def broker_group_path(broker_group: str) -> str:
    """GET what is left to be read in a broker group. The name is quoted by the caller."""
    return f"/v1/broker-groups/{broker_group}"


def broker_group_topics_path(broker_group: str) -> str:
    """GET the topics that are in a broker group, or those that are not."""
    return f"/v1/broker-groups/{broker_group}/topics"


def join_path(broker_group: str) -> str:
    """POST to declare in a broker group the groups that others have."""
    return f"/v1/broker-groups/{broker_group}/join"


CLUSTER_PATH = "/v1/cluster"
# What `to` of a redrive says instead of a time: its target is each message's own queue, which is the default and the only target.
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
    """GET where one topic lives."""
    return f"/v1/topics/{topic}/route"


def kv_path(namespace: str, key: str = "") -> str:
    """GET, PUT and DELETE one configuration; without *key* GET a whole namespace. The names are quoted by the caller."""
    return f"{KV_PATH}/{namespace}/{key}" if key else f"{KV_PATH}/{namespace}"


def write_permission_path(broker_group: str) -> str:
    """POST to withdraw or restore a broker group's write permission."""
    return f"/v1/broker-groups/{broker_group}/write-permission"
