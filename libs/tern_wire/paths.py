"""URL paths, header names, media types and default ports, shared by client and services."""

PORT_NAMESRV = 9876
PORT_BROKER_LINK = 10911
PORT_BROKER_RAFT = 10912
PORT_BROKER_HTTP = 10913
PORT_PROXY = 8080

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
HEADER_PROPERTIES = "MQ-Properties"
HEADER_PROPERTY_PREFIX = "MQ-Property-"
HEADER_IDEMPOTENCY_KEY = "Idempotency-Key"
HEADER_REPLAYED = "Idempotency-Replayed"
HEADER_REQUEST_ID = "MQ-Request-Id"
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


CLUSTER_PATH = "/v1/cluster"
# Broker.
BROKER_PATH = "/v1/broker"
REBUILD_MANIFEST_PATH = "/v1/broker/rebuild/manifest"
REBUILD_FILES_PATH = "/v1/broker/rebuild/files"
# Name server.
REGISTER_PATH = "/v1/brokers/register"
UNREGISTER_PATH = "/v1/brokers/unregister"
ROUTES_PATH = "/v1/routes"
