"""Every limit of TernMQ, once, with its reason; relations between limits are asserted where they are declared.

Sizes are bytes, times are milliseconds, unless a name says otherwise.
"""

KIB = 1024
MIB = 1024 * KIB

# Messages ---------------------------------------------------------------------------------------------------------
# RocketMQ's default maxMessageSize; larger payloads belong in an object store with a pointer in the queue.
MESSAGE_BODY_SIZE_MAX_BYTES = 4 * MIB
# Four of the largest messages: a proxy holds a whole batch in memory while it encodes it.
BATCH_SIZE_MAX_BYTES = 16 * MIB
# Bounds the result document and the work between two turns of the event loop (about 10 ms of encoding).
BATCH_MESSAGES_MAX = 1_024
# User properties, tag and keys together, so that RocketMQ (32,767 bytes with its system properties) accepts the record.
PROPERTIES_SIZE_MAX_BYTES = 16 * KIB
PROPERTIES_MAX = 64
PROPERTY_NAME_SIZE_MAX_BYTES = 128
PROPERTY_VALUE_SIZE_MAX_BYTES = 8 * KIB
KEYS_MAX = 32
TAG_SIZE_MAX_BYTES = 255
# Longer keys are almost always a serialised object put there by mistake.
IDEMPOTENCY_KEY_SIZE_MAX_BYTES = 255

# RocketMQ's files --------------------------------------------------------------------------------------------------
# RocketMQ's remoting takes frames of 16 MiB, so no record of its own can be larger than that and its header.
ROCKETMQ_RECORD_SIZE_MAX_BYTES = 16 * MIB + 64 * KIB
# A body may unpack to this many times its stored size: zlib cannot do more, a bomb in zstd can. Short bodies may always ...
DECOMPRESSION_RATIO_MAX = 1_032
# ... unpack to this much: a page of zeros is small and harmless.
DECOMPRESSED_SIZE_FREE_BYTES = 64 * KIB

# Log --------------------------------------------------------------------------------------------------------------
# One largest message with its record header, row and entry header.
ENTRY_SIZE_MAX_BYTES = 5 * MIB
# A group commit gathers no more than this: beyond it an fdatasync costs more latency than it saves.
GROUP_COMMIT_SIZE_MAX_BYTES = 1 * MIB
SEGMENT_SIZE_DEFAULT_BYTES = 1024 * MIB
# Below this much free disk a broker refuses sends, while acks and offsets still fit.
DISK_FREE_MIN_BYTES = 256 * MIB

# Rebuild ----------------------------------------------------------------------------------------------------------
# Four of the largest entries that a group commit makes: enough for one request to cost little, and a leader holds few at a time.
REBUILD_CHUNK_SIZE_MAX_BYTES = 4 * MIB
# A copy shares disks and cores with the group that goes on: a gibibyte in 8 s, which leaves most of an ordinary SSD to the sends.
REBUILD_RATE_MAX_BYTES_PER_S = 64 * MIB
# A proof of knowing the cluster key is good this long before and behind its time, as much as clocks of one cluster may differ.
PEER_PROOF_WINDOW_MS = 60_000
# Nonces of proofs that are remembered, so that none is good twice: a copy at full rate needs some thousands in such a window.
PEER_PROOFS_MAX = 65_536

# Link -------------------------------------------------------------------------------------------------------------
# One entry and its header in one frame; RocketMQ allows 16 MiB.
FRAME_SIZE_MAX_BYTES = 8 * MIB
# A proxy's sends travel in frames of at most this, so that the broker can fill entries without splitting often.
LANE_SIZE_MAX_BYTES = 1 * MIB
# Requests that a broker holds before it answers `broker-busy`; at 30,000 messages/s this is about a second of work.
PROPOSALS_SIZE_MAX_BYTES = 64 * MIB
PROPOSALS_MAX = 16_384

# Consumption ------------------------------------------------------------------------------------------------------
RECEIVE_MESSAGES_MAX = 256
RECEIVE_SIZE_MAX_BYTES = 4 * MIB
RECEIVE_SIZE_DEFAULT_BYTES = 1 * MIB
SETTLE_ENTRIES_MAX = 1_024
# As SQS and Alibaba's HTTP door: longer waits are cut by proxies and NAT boxes on the way.
WAIT_MAX_MS = 30_000
INVISIBLE_MIN_MS = 1_000
INVISIBLE_MAX_MS = 12 * 3_600_000
INVISIBLE_DEFAULT_MS = 60_000
# Messages under lease for one group in one queue: a group that only receives must not grow the state without end.
LEASED_PER_QUEUE_MAX = 65_536
PULL_MESSAGES_MAX = 16_384
# A month and some days, so that monthly reminders fit; each hour of it is one bucket of timers, so there are about a thousand.
TIMER_DELAY_MAX_MS = 40 * 24 * 3_600_000
# Waiting long polls at one proxy and notifications at one broker; each costs a few KiB.
PARKED_POLLS_MAX = 10_000

# Replicated state -------------------------------------------------------------------------------------------------
TOPICS_MAX = 1_000
GROUPS_MAX = 1_000
QUEUES_PER_TOPIC_MAX = 1_024
QUEUES_PER_TOPIC_DEFAULT = 8
# Idempotency keys are remembered this long (SQS FIFO remembers 5 minutes) ...
IDEMPOTENCY_WINDOW_MS = 600_000
# ... and no more than this many: about 60 bytes each. Full means `overloaded`, never forgotten early.
IDEMPOTENCY_KEYS_MAX = 4_000_000

# Routes -----------------------------------------------------------------------------------------------------------
# Name servers and proxies remember a broker group that is gone for a day: a night, and the morning in which somebody mends it.
GONE_GROUP_KEPT_MS = 24 * 3_600_000
# Topics of such groups that are remembered, each group counting as one more: 64 full groups, about 12 MiB and far more than die at once.
GONE_TOPICS_KEPT_MAX = 64 * (TOPICS_MAX + 1)

# HTTP -------------------------------------------------------------------------------------------------------------
REQUEST_HEAD_SIZE_MAX_BYTES = 16 * KIB
CONNECTIONS_MAX = 1_024
# Bytes of request bodies that one proxy holds at a time; more is refused early, never queued.
IN_FLIGHT_SIZE_MAX_BYTES = 128 * MIB
BODY_DEADLINE_MS = 30_000
# How long a proxy looks for a leader before it answers `no-leader`: longer than a handover, shorter than a patience.
LEADER_WAIT_MS = 1_000
# How long a proxy waits for a quorum before it answers `outcome-unknown`.
APPEND_DEADLINE_MS = 5_000

assert MESSAGE_BODY_SIZE_MAX_BYTES + PROPERTIES_SIZE_MAX_BYTES + 64 * KIB < ENTRY_SIZE_MAX_BYTES
assert ENTRY_SIZE_MAX_BYTES + 64 * KIB < FRAME_SIZE_MAX_BYTES
assert LANE_SIZE_MAX_BYTES <= GROUP_COMMIT_SIZE_MAX_BYTES
assert BATCH_SIZE_MAX_BYTES <= IN_FLIGHT_SIZE_MAX_BYTES
