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
# RocketMQ's: shorter than 64 bytes.
MESSAGE_GROUP_SIZE_MAX_BYTES = 63
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
# The greatest answer that a copy believes: a piece of a file, or a manifest with room for a state that names many tables.
REBUILD_REPLY_MAX_BYTES = 2 * REBUILD_CHUNK_SIZE_MAX_BYTES
# A leader remembers the proofs of two minutes, one a piece of a mebibyte: with more pieces than these it would refuse them.
BACKUP_RATE_MAX_MIB_PER_S = 512
# A backup waits so long for a group without a leader, or one that cannot offer its log now: some elections, or a broker's restart.
BACKUP_PATIENCE_S = 30.0
# A proof of knowing the cluster key is good this long before and behind its time, as much as clocks of one cluster may differ.
PEER_PROOF_WINDOW_MS = 60_000
# Nonces of proofs that are remembered, so that none is good twice: a copy at full rate needs some thousands in such a window.
PEER_PROOFS_MAX = 65_536

# Link -------------------------------------------------------------------------------------------------------------
# One entry and its header in one frame; RocketMQ allows 16 MiB.
FRAME_SIZE_MAX_BYTES = 8 * MIB
# A proxy's sends travel in frames of at most this, so that the broker can fill entries without splitting often.
LANE_SIZE_MAX_BYTES = 1 * MIB
# Requests that a broker holds before it answers `overloaded`; at 30,000 messages/s this is about a second of work.
PROPOSALS_SIZE_MAX_BYTES = 64 * MIB
PROPOSALS_MAX = 16_384
# RocketMQ's waitTimeMillsInSendQueue: a broker that is further behind than this takes no more sends ...
SEND_QUEUE_AGE_MAX_MS = 200
# ... if it is behind with more requests, or more bytes, than its next entry clears: one slow fdatasync alone is no overload.
SEND_QUEUE_REQUESTS_FREE, SEND_QUEUE_SIZE_FREE_BYTES = 1_024, GROUP_COMMIT_SIZE_MAX_BYTES

# Consumption ------------------------------------------------------------------------------------------------------
RECEIVE_MESSAGES_MAX = 256
RECEIVE_SIZE_MAX_BYTES = 4 * MIB
RECEIVE_SIZE_DEFAULT_BYTES = 1 * MIB
SETTLE_ENTRIES_MAX = 1_024
# Received at once from one broker group through one proxy while sends wait: three receives of 32. With eight of them, sends beside readers
# of a backlog took 2.2 to 2.9 times what they take alone where all cores are busy (p99); with three 1.2 to 1.4 times, at 0.6 of the reading.
READING_BESIDE_SENDS_MAX_MESSAGES = 96
# Longer than a turn takes with any sensible number of readers, and far below what a client's time-out is.
READING_TURN_WAIT_MAX_MS = 250
# As SQS's ReceiveRequestAttemptId would have to be: a UUID and a word.
ATTEMPT_ID_LENGTH_MAX = 64
# As SQS and Alibaba's HTTP door: longer waits are cut by proxies and NAT boxes on the way.
WAIT_MAX_MS = 30_000
INVISIBLE_MIN_MS = 1_000
INVISIBLE_MAX_MS = 12 * 3_600_000
INVISIBLE_DEFAULT_MS = 60_000
# RocketMQ's retryMaxTimes, and how long a message rests after attempt 1, 2, ... has failed (its delay levels from the third on).
ATTEMPTS_DEFAULT, ATTEMPTS_MAX = 16, 1_000
RETRY_DELAYS_MS = tuple(
    seconds * 1_000 for seconds in (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
# RocketMQ's 18 delay levels, from level 1 on.
DELAY_LEVELS_MS = (1_000, 5_000, *RETRY_DELAYS_MS)
# What a consumer says of a message that it will never take; RocketMQ has none, SQS's and Azure's are about as long.
DEAD_LETTER_REASON_SIZE_MAX_BYTES = 1 * KIB
# Dead letters in one page, and in one step of a redrive: some milliseconds of reading.
DEAD_LETTERS_PAGE_MAX = 256
# Redrive tasks that a broker group remembers, the running ones among them; each with at most so many failures told one by one ...
REDRIVE_TASKS_MAX, REDRIVE_FAILURES_MAX = 64, 100
# ... and so many dead letters named one by one; and how fast at most it is asked to go, far above what a group takes.
REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S = 1_024, 100_000
# Messages under lease for one group in one queue: a group that only receives must not grow the state without end.
LEASED_PER_QUEUE_MAX = 65_536
# Leases and rests that end with one entry: some 15 ms of work. Those of many queues may end at one moment; the others follow at once.
EXPIRES_MAX = 2_048
# Messages that wait behind an earlier one of their message group, for one group in one queue: 8 bytes each. Full means that the queue
# is looked at no further until some are settled, so a message group that is stuck for ever stops its queue here.
FIFO_PARKED_PER_QUEUE_MAX = 262_144
# Messages that one entry looks at for their message group: about 5 ms of the leader's time ...
FIFO_SCAN_MESSAGES_MAX = 2_048
# ... and the bytes that are read for it.
FIFO_SCAN_SIZE_MAX_BYTES = 4 * MIB
# Rows of LEASE_FIFO in one entry, 24 bytes each: what many receives look at and lease together stays far below an entry's size.
FIFO_ROWS_PER_ENTRY_MAX = 16_384
PULL_MESSAGES_MAX = 16_384
# Readers that are further behind the end of the log than this read from disk, mostly: a follower's does as well as the leader's.
OLD_DATA_MIN_BYTES = 256 * MIB
# Results of one query by key, RocketMQ's maxMsgsNumBatch; and entries of a key's chain that are looked at for one answer: some 10 ms.
QUERY_MESSAGES_MAX = 64
QUERY_STEPS_MAX = 8_192
# A filter's text as a client gives it: it travels in every receive, and is kept with every subscription ...
FILTER_SIZE_MAX_BYTES = 1 * KIB
# ... and its terms: tags, or tests of an SQL filter, of which IN has one a value. Each costs every message that is looked at some 0.1 us, and who
# has to tell more apart has a property for it.
FILTER_TERMS_MAX = 64
# What a broker compiles of what a proxy has let in: a filter's canonical form has more blanks than what was given (but not four times as many
# bytes), and a proxy or a member of an earlier build may have let in more terms. Tokens: about 250 comparisons, some tens of microseconds.
FILTER_ACCEPTED_SIZE_MAX_BYTES = 8 * KIB
FILTER_TOKENS_MAX = 1_024
# Parentheses and NOTs inside each other: more than anyone reads, far less than Python's stack.
FILTER_DEPTH_MAX = 32
# Digits, sign and exponent of a number in a filter or a property; a longer text is no number. Doubles need 24, and
# making an integer of digits takes time that grows with their square.
FILTER_NUMBER_LENGTH_MAX = 64
# Records that a filter decides in one go, if it is an ordinary one; and what it may take for that (ms), however long the properties: half of
# what the core loop may stand still.
FILTER_PAGE_RECORDS_MAX = 1_024
FILTER_PAGE_MAX_MS = 10
# A month and some days, so that monthly reminders fit; each hour of it is one bucket of timers, so there are about a thousand.
TIMER_DELAY_MAX_MS = 40 * 24 * 3_600_000
# Messages that wait for their delivery time on one page of a list: each is read from the log.
SCHEDULED_LISTED_MAX = 256
# Waiting long polls at one proxy and notifications at one broker; each costs a few KiB.
PARKED_POLLS_MAX = 10_000
# A request waits for its reply as long as RocketMQ's examples do by default, and never longer than a poll.
REPLY_TIMEOUT_DEFAULT_MS, REPLY_TIMEOUT_MAX_MS = 10_000, WAIT_MAX_MS
# Both stand in paths, keys and properties: a UUID, a host with a process id.
CORRELATION_ID_LENGTH_MAX, CLIENT_ID_LENGTH_MAX = 64, 64
# Clocks of one cluster differ less than this: a reply is looked for from so long before its request was born.
REPLY_CLOCKS_SLACK_MS = 60_000

# Transactions -----------------------------------------------------------------------------------------------------
# RocketMQ's transactionTimeOut, transactionCheckMax and transactionCheckInterval: 6 s, 15 times, every 30 s.
CHECK_AFTER_DEFAULT_MS, CHECKS_DEFAULT, CHECK_INTERVAL_DEFAULT_MS = 6_000, 15, 30_000
# A check sooner than this asks a client that has not had time to commit; later than an hour nobody waits, and the log keeps the record.
CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS = 100, 3_600_000
CHECKS_MAX = 100
# How long a callback may take: a checker holds a connection for it.
CHECK_TIMEOUT_DEFAULT_MS, CHECK_TIMEOUT_MIN_MS, CHECK_TIMEOUT_MAX_MS = 3_000, 100, 30_000
# As browsers and proxies on the way take; and 64 random bytes in base64 with their prefix.
CHECK_URL_SIZE_MAX_BYTES, CHECK_SECRET_SIZE_MAX_BYTES = 2_048, 128
# Messages of one transaction: an order and what follows from it; all are one entry of the log.
TRANSACTION_MESSAGES_MAX = 256
# Records of several messages together: they and their rows are one entry, which one largest message alone fills as far.
TRANSACTION_SIZE_MAX_BYTES = MESSAGE_BODY_SIZE_MAX_BYTES + PROPERTIES_SIZE_MAX_BYTES + 64 * KIB
# Open transactions of one producer group: a client that leaves more than this behind leaks them. Those that nobody answered for ...
OPEN_PER_PRODUCER_GROUP_MAX, PARKED_PER_PRODUCER_GROUP_MAX = 1_000, 10_000
# ... and open and parked ones of a broker group, with their messages: at most some 150 MiB of state, and 60 MiB in every saved one.
TRANSACTIONS_MAX, HALF_MESSAGES_MAX = 200_000, 1_000_000
# Each costs about 1 KiB, and its URL; every broker group has them all.
PRODUCER_GROUPS_MAX = 10_000
# Ended transactions that a broker group remembers, 54 bytes each in memory and in every saved state: at 1,000 a second four minutes.
OUTCOMES_KEPT_MAX = 262_144
# Checks of one transaction that are told one by one, the newest; 24 bytes each. The default of max_checks, and one more.
CHECKS_KEPT_MAX = 16
# Checkers and answers that were heard last: more checkers than run at a time, with all their answers.
CHECK_TEXTS_MAX = 4_096
# Different reasons of ended transactions that were given last, up to 256 characters each: some 8 MiB if all are long.
REASONS_KEPT_MAX = 16_384
CHECKER_NAME_LENGTH_MAX, CHECK_ANSWER_LENGTH_MAX, RESOLVE_REASON_LENGTH_MAX = 64, 32, 256
# Checks in one claim, as messages in one receive; and how long at most they are one checker's, beside the time that a callback may take.
CHECKS_CLAIMED_MAX, CLAIM_MAX_MS = RECEIVE_MESSAGES_MAX, 120_000
# Ends, or reports, in one request: a lane of them is far below an entry's size.
ENDS_PER_REQUEST_MAX = 16_384

# Replicated state -------------------------------------------------------------------------------------------------
# With eight queues each costs some 550 bytes at a broker and 750 at a proxy, so all of them 15 MiB. Twice what large installations have.
TOPICS_MAX = 20_000
GROUPS_MAX = 20_000
# Queues of all topics in one broker group: 80 bytes each at a broker, and 16 in every saved state.
QUEUES_MAX = 400_000
# Attributes of one topic or group: so that all of them together stay below 40 MiB.
ATTRIBUTES_MAX = 16
ATTRIBUTE_VALUE_SIZE_MAX_BYTES = 256
ATTRIBUTES_SIZE_MAX_BYTES = 1 * KIB
# Topics or groups on one page of a list; and queues in one description of a group, which is one frame.
LISTED_MAX = 1_000
QUEUES_SHOWN_MAX = 20_000
# Rows of topics and of their groups in one answer about what a broker group hosts, 140 bytes each: a frame takes twice as many.
HOSTED_ROWS_MAX = 20_000
# Topics and groups that are named of those that keep a broker group from being drained: a screenful or two; the others are counted.
LEFT_SHOWN_MAX = 100
# Declarations that wait for one broker group while it joins: as many share an entry, and nobody else's sends notice them.
JOINS_AT_ONCE = 32
# Delays that a group's own table may have, and the shortest with which an exponential one begins: each step must grow.
RETRY_DELAYS_KEPT_MAX = 64
RETRY_DELAY_MIN_MS = 100
QUEUES_PER_TOPIC_MAX = 1_024
QUEUES_PER_TOPIC_DEFAULT = 8
# Broker groups that share out one topic's keyed and ordered messages; the text of a placement is in the route of every topic.
PLACEMENT_GROUPS_MAX = 64
# Changes of one topic's placement: so many that nobody makes, of so few digits that a route stays short.
PLACEMENT_EPOCH_MAX = 99_999_999
# A proxy that hears that a topic has moved asks name servers for where to; they know it some ms after the broker group does.
PLACEMENT_NEWS_MS = 3_000
# Idempotency keys are remembered this long (SQS FIFO remembers 5 minutes) ...
IDEMPOTENCY_WINDOW_MS = 600_000
# ... and no more than this many: 33,000 a second all the time, 3 bytes of memory and 34 of disk each. Full means `overloaded`, never
# forgotten early.
IDEMPOTENCY_KEYS_MAX = 20_000_000
# So many fill a table, which then becomes a file: 8 MiB. The youngest one is in memory and in every saved state.
IDEMPOTENCY_TABLE_KEYS_MAX = 262_144
# Sealed tables that wait for a leader's disk, about 15 MB each: then it takes no more keys.
IDEMPOTENCY_TABLES_WAITING_MAX = 2

# Members of producer and consumer groups ---------------------------------------------------------------------------
# RocketMQ's: a client says that it is there every 30 s, and is gone when it has been silent for four times that.
HEARTBEAT_INTERVAL_MS = 30_000
MEMBER_EXPIRY_MS = 120_000
# A day: who may be silent for longer is no member.
MEMBER_EXPIRY_MAX_MS = 86_400_000
# More than there are queues in most topics; each change of membership looks at all members of its group.
MEMBERS_PER_GROUP_MAX = 1_000
# Members of all groups: 667 heartbeats a second, a few hundredths of what a broker group takes.
MEMBERS_MAX = 20_000
# Topics of one member, as many as anyone reads in one process ...
SUBSCRIPTIONS_PER_MEMBER_MAX = 64
# ... all its filters and queue names together; those of a group, which is described in one frame; and those of all members, which every
# saved state holds.
HEARTBEAT_SIZE_MAX_BYTES = 32 * KIB
GROUP_MEMBERS_SIZE_MAX_BYTES = 2 * MIB
MEMBERS_SIZE_MAX_BYTES = 32 * MIB
# RocketMQ's: a queue's lock is good for 60 s, and its holder renews it every 20 s.
QUEUE_LOCK_MS, QUEUE_LOCK_RENEWAL_MS = 60_000, 20_000
# Locked queues of all groups and topics: some 20 MiB of state; who holds one is a member.
QUEUE_LOCKS_MAX = 100_000

# Principals -------------------------------------------------------------------------------------------------------
# Long enough for an address or a SPIFFE-like name; it stands in paths, logs and audit lines.
PRINCIPAL_NAME_LENGTH_MAX, PRINCIPAL_TEXT_LENGTH_MAX = 64, 128
# Every broker group and every proxy has them all. Those that were deleted count too, until they are forgotten (below).
PRINCIPALS_MAX = 10_000
# ... all of them together: what every saved state holds of them; and one: a page of grants, far below an entry's size.
PRINCIPALS_SIZE_MAX_BYTES, PRINCIPAL_SIZE_MAX_BYTES = 16 * MIB, 32 * KIB
# Whoever needs more gives names a common prefix; each is looked at when a principal's right is first asked for.
GRANTS_PER_PRINCIPAL_MAX = 100
# The old one and the new one, while a key is rotated.
KEYS_LIVE_MAX = 2
# Two proxies may each have made one while neither reached the other's broker group: so many are merged.
KEYS_KEPT_MAX = 8
# Networks of one key; more is a firewall's work.
KEY_NETWORKS_MAX = 16
# Revoked keys of one principal that are remembered one by one, until all older ones are revoked too.
REVOKED_KEPT_MAX = 64
# A deleted principal is remembered for so long, so that a broker group that was away does not bring it back.
DELETED_PRINCIPAL_KEPT_MS = 90 * 24 * 3_600_000
# How often a proxy asks each broker group for changes: a revocation is known after this and an answer, which is less than 5 s ...
PRINCIPALS_INTERVAL_MS, PRINCIPALS_ANSWER_MS = 2_000, 2_000
# ... and everything again, in case a broker group was made anew: 16 MiB at most. Principals on one page of that: some ms of work.
PRINCIPALS_WHOLE_INTERVAL_MS, PRINCIPALS_PAGE_MAX = 300_000, 128
PRINCIPALS_PAGE_SIZE_MAX_BYTES = 1 * MIB

# Credentials at a proxy --------------------------------------------------------------------------------------------
# A person who has mistaken a key tries some times a minute; whatever is faster is broken or guesses. Addresses with keys that are counted.
AUTH_FAILURES_PER_MIN, AUTH_FAILURES_KEPT_MAX = 10, 65_536
# Keys that were good and are not looked up again until the table of principals changes: 1 KiB each.
SESSIONS_KEPT_MAX = 8_192
# How far the clocks of a signer and a proxy may differ, as AWS allows; a nonce is remembered until its signature is too old ...
SIGNATURE_WINDOW_MS = 300_000
# ... so many of them, 90 bytes each: 3,490 signed requests a second, above what a core verifies. Full means refused, never forgotten early.
SIGNATURE_NONCES_MAX, SIGNATURE_NONCE_LENGTH_MAX = 1_048_576, 64
# Characters of a nonce: fewer would meet by chance.
SIGNATURE_NONCE_LENGTH_MIN = 8
# Public keys that are kept ready to verify with, 1 KiB each. Below the principals that there may be; reading one again takes some microseconds.
SIGNATURE_KEYS_KEPT_MAX = 8_192
# Refusals that are audited one by one, a second; the others are counted, and the count is told.
AUDITED_REFUSALS_PER_S = 100
# Events that wait for the audit topic while no broker group takes them, 500 bytes each; the log has all of them.
AUDIT_EVENTS_WAITING_MAX = 10_000

# Routes -----------------------------------------------------------------------------------------------------------
# Name servers and proxies remember a broker group that is gone for a day: a night, and the morning in which somebody mends it.
GONE_GROUP_KEPT_MS = 24 * 3_600_000
# Topics of such groups that are remembered, each group counting as one more: about 12 MiB, and never less than four full groups.
GONE_TOPICS_KEPT_MAX = max(64_064, 4 * (TOPICS_MAX + 1))
# Configuration at a name server: names as long as topics, a value that holds the ordered configuration of 100 broker groups ...
KV_NAME_SIZE_MAX_BYTES = 128
KV_VALUE_SIZE_MAX_BYTES = 4 * KIB
# ... an ordered configuration for every topic and as much again for everything else ...
KV_ENTRIES_MAX = 2 * TOPICS_MAX + 1_000
# ... and a file that is written whole with each change: some 10 ms of work.
KV_SIZE_MAX_BYTES = 4 * MIB
# Broker groups whose write permission is withdrawn; far above the groups of any cluster.
WIPED_GROUPS_MAX = 1_000

# HTTP -------------------------------------------------------------------------------------------------------------
# Reference: RFC 6585 5 (431), RFC 9110 15.5.15 (414). nginx takes 32 KiB, Apache 8 KiB a field: 16 are all properties that a message may have.
REQUEST_HEAD_SIZE_MAX_BYTES = 16 * KIB
# A TLS handshake is one round trip and a millisecond of work; asyncio would wait 60 s. nginx and Envoy: 60 and 15 s.
TLS_HANDSHAKE_MAX_MS = 5_000
# A browser behind three proxies sends some 30; each field costs a callback and an entry before anybody knows who asks. The same for trailers.
REQUEST_FIELDS_MAX = 64
# Our longest path with its longest names is below 1 KiB; the rest is a filter. Longer filters travel in bodies.
REQUEST_TARGET_SIZE_MAX_BYTES = 4 * KIB
# A head is one packet or two; a client that needs longer is broken or hostile. Also for the time until its first byte.
HEAD_DEADLINE_MS = 5_000
# The largest batch in this time is 4.5 Mbit/s; SDKs give a request up about then.
BODY_DEADLINE_MS = 30_000
# ... and never slower than this on average, looked at in such steps: a body of a few bytes that trickles is gone after the first one.
BODY_RATE_MIN_BYTES_PER_S, BODY_RATE_STEP_MS = 1 * KIB, 5_000
# Who does not take its answer holds memory: the same rate, looked at in such steps. A phone may lose its network for so long.
ANSWER_STEP_MS = 30_000
# A chunk costs a callback whatever is in it: the largest batch in pieces of 1 KiB.
CHUNKS_MAX = 16_384
# What one body may take on the wire with its chunk headers, extensions and what nobody reads of it.
BODY_WIRE_SIZE_MAX_BYTES = 2 * BATCH_SIZE_MAX_BYTES
# Requests that lie behind an unanswered one on their connection, each some 2 KiB: no client is known to send more than 16 ahead.
PIPELINED_MAX = 64
# At a name server, a broker or a checker: the nodes of a large cluster, several times. Here and below those that have shown who they are.
CONNECTIONS_MAX = 1_024
# At a Raft port: four peers, each with an old link, a new one, and others that are refused by name.
PEER_CONNECTIONS_MAX = 32
# Connections of one port that have not shown who they are, by a whole handshake or a whole head: whatever comes, a newcomer has the turns of the
# loop that showing takes. With TLS each costs some 100 KB. At a proxy as many as its queue: all its clients may come at once.
STRANGERS_MAX, PROXY_STRANGERS_MAX = 256, 1_024
# At that cap so many of them are replaced in a second, which costs a loop a fifth of its time: one stays 200 ms. Where descriptors are short there
# are fewer, and each stays two round trips of one machine room at least.
STRANGERS_PER_S_MAX, STRANGER_STAY_MIN_MS = 1_280, 10
# At a proxy: each parked poll holds one, some 40 KiB with TLS, so all of them 320 MiB.
PROXY_CONNECTIONS_MAX = 8_192
# From one address (IPv4) or one network of 64 bits (IPv6, where one host has it all) that is not loopback: eight of them fill a proxy. Many
# consumers behind one NAT are fine.
CONNECTIONS_PER_ADDRESS_MAX = 1_024
# Requests that one process handles at a time without those that are parked: at 5 ms each that is 100,000 a second, more than it can do.
REQUESTS_MAX = 512
# Polls of one principal (or address, without credentials) that wait at one proxy: half of what may wait there, so that nobody starves others.
PARKED_POLLS_PER_PRINCIPAL_MAX = 4_096
# Objects and arrays within each other: people write 5, parsers of consumers take about 1,000.
JSON_DEPTH_MAX = 32
# Integers are those of the wire and of most languages: from -2^63 to 2^64 - 1, a text beyond.
JSON_INTEGER_MIN, JSON_INTEGER_MAX = -(1 << 63), (1 << 64) - 1
# Values of one document, each some 60 bytes in memory: ten for each of 1,024 settles.
JSON_NODES_MAX = 10_000
# Values of a batch, a transaction or a registration: 256 for each message of the largest one, or 10 for each topic and more.
JSON_BATCH_NODES_MAX = 262_144
# Elements of any list or map in MessagePack before they are looked at: some 10 MiB at most. Whatever means something has a lower limit.
PACKED_ELEMENTS_MAX = 65_536
# Bytes of request bodies that one proxy holds at a time; more is refused early, never queued.
IN_FLIGHT_SIZE_MAX_BYTES = 128 * MIB
# ... and messages of sends: each costs about 1 KiB beside its own bytes until it is answered. It is some 4 s of a busy proxy's work.
IN_FLIGHT_MESSAGES_MAX = 131_072
# How long a proxy looks for a leader before it answers `no-leader`: longer than a handover, shorter than a patience.
LEADER_WAIT_MS = 1_000
# How long a proxy waits for a quorum before it answers `outcome-unknown`.
APPEND_DEADLINE_MS = 5_000
# What one comparison of the nodes looks at: deliveries (a consumer group at a topic, all queues), and rows of every other table; about 1 ms each.
INSPECTED_DELIVERIES_MAX, INSPECTED_ROWS_MAX = 32, 128
# Entries that a group has passed over, each by an operator's word: far more than anybody should ever need, and 12 KiB.
PASSED_OVER_MAX = 1_024

assert MESSAGE_BODY_SIZE_MAX_BYTES + PROPERTIES_SIZE_MAX_BYTES + 64 * KIB < ENTRY_SIZE_MAX_BYTES
assert ENTRY_SIZE_MAX_BYTES + 64 * KIB < FRAME_SIZE_MAX_BYTES
assert LANE_SIZE_MAX_BYTES <= GROUP_COMMIT_SIZE_MAX_BYTES
assert 2 * HOSTED_ROWS_MAX * 140 < FRAME_SIZE_MAX_BYTES
assert SEND_QUEUE_SIZE_FREE_BYTES < PROPOSALS_SIZE_MAX_BYTES
assert SEND_QUEUE_REQUESTS_FREE < PROPOSALS_MAX
assert BATCH_SIZE_MAX_BYTES <= IN_FLIGHT_SIZE_MAX_BYTES
assert BATCH_MESSAGES_MAX <= IN_FLIGHT_MESSAGES_MAX
assert TOPICS_MAX * QUEUES_PER_TOPIC_DEFAULT <= QUEUES_MAX
assert (TOPICS_MAX + GROUPS_MAX) * ATTRIBUTES_SIZE_MAX_BYTES <= 40 * MIB
assert 4 * HEARTBEAT_INTERVAL_MS <= MEMBER_EXPIRY_MS
assert QUEUE_LOCK_MS < MEMBER_EXPIRY_MS
assert CHECK_TIMEOUT_MAX_MS < CLAIM_MAX_MS
assert TRANSACTION_MESSAGES_MAX <= BATCH_MESSAGES_MAX
assert TRANSACTION_SIZE_MAX_BYTES + TRANSACTION_MESSAGES_MAX * 64 + 64 * KIB < ENTRY_SIZE_MAX_BYTES
assert 8 * CONNECTIONS_PER_ADDRESS_MAX <= PROXY_CONNECTIONS_MAX
assert PARKED_POLLS_PER_PRINCIPAL_MAX <= PROXY_CONNECTIONS_MAX // 2
assert REQUEST_TARGET_SIZE_MAX_BYTES < REQUEST_HEAD_SIZE_MAX_BYTES
assert BATCH_MESSAGES_MAX * 256 <= JSON_BATCH_NODES_MAX
assert TOPICS_MAX * 10 <= JSON_BATCH_NODES_MAX
assert BATCH_MESSAGES_MAX < PACKED_ELEMENTS_MAX
assert KEYS_LIVE_MAX <= KEYS_KEPT_MAX <= REVOKED_KEPT_MAX
assert PRINCIPALS_INTERVAL_MS + PRINCIPALS_ANSWER_MS < 5_000
assert PRINCIPALS_PAGE_SIZE_MAX_BYTES + PRINCIPAL_SIZE_MAX_BYTES < FRAME_SIZE_MAX_BYTES
assert OPEN_PER_PRODUCER_GROUP_MAX < PARKED_PER_PRODUCER_GROUP_MAX < TRANSACTIONS_MAX < OUTCOMES_KEPT_MAX
