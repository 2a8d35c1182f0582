"""Every limit, once, with its reason; relations between limits are asserted at the end.

Sizes are bytes and times are milliseconds, unless a name says otherwise. The table is one thing:
limits depend on each other, and each is looked up here.
"""

KIB = 1024
MIB = 1024 * KIB

# Messages -----------------------------------------------------------------------------------------
# RocketMQ's default maxMessageSize; larger payloads belong in an object store with a pointer in the
# queue.
MESSAGE_BODY_SIZE_MAX_BYTES = 4 * MIB
# Four of the largest messages: a proxy holds a whole batch in memory while it encodes it.
BATCH_SIZE_MAX_BYTES = 16 * MIB
# Bounds the result document and the work between two turns of the event loop (about 10 ms of
# encoding).
BATCH_MESSAGES_MAX = 1_024
# User properties, tag and keys together, so that RocketMQ (32,767 bytes with its system properties)
# accepts the record.
PROPERTIES_SIZE_MAX_BYTES = 16 * KIB
PROPERTIES_MAX = 64
PROPERTY_NAME_SIZE_MAX_BYTES = 128
PROPERTY_VALUE_SIZE_MAX_BYTES = 8 * KIB
KEYS_MAX = 32
TAG_SIZE_MAX_BYTES = 255
# RocketMQ's limit: shorter than 64 bytes.
MESSAGE_GROUP_SIZE_MAX_BYTES = 63
# A longer key is almost always a serialised object by mistake.
IDEMPOTENCY_KEY_SIZE_MAX_BYTES = 255

# RocketMQ's files ---------------------------------------------------------------------------------
# RocketMQ's remoting accepts frames of 16 MiB, so none of its records exceeds that and its header.
ROCKETMQ_RECORD_SIZE_MAX_BYTES = 16 * MIB + 64 * KIB
# A body may unpack to this many times its stored size. zlib cannot exceed it; a zstd bomb can.
# Short bodies may always ...
DECOMPRESSION_RATIO_MAX = 1_032
# ... unpack to this size: a page of zeros is small and harmless.
DECOMPRESSED_SIZE_FREE_BYTES = 64 * KIB

# Log ----------------------------------------------------------------------------------------------
# One largest message with its record header, row and entry header.
ENTRY_SIZE_MAX_BYTES = 5 * MIB
# Largest group commit: beyond this size an fdatasync costs more latency than it saves.
GROUP_COMMIT_SIZE_MAX_BYTES = 1 * MIB
SEGMENT_SIZE_DEFAULT_BYTES = 1024 * MIB
# Free disk below which a broker refuses sends, while acks and offsets still fit.
DISK_FREE_MIN_BYTES = 256 * MIB

# Rebuild ------------------------------------------------------------------------------------------
# Four of the largest entries of a group commit: large enough to make a request cheap, and a leader
# holds few at a time.
REBUILD_CHUNK_SIZE_MAX_BYTES = 4 * MIB
# A copy shares disks and cores with the running group: a gibibyte in 16 s leaves most of an
# ordinary SSD to the sends.
REBUILD_RATE_MAX_BYTES_PER_S = 64 * MIB
# Largest answer that a copy accepts: a piece of a file, or a manifest with room for a state that
# names many tables.
REBUILD_REPLY_MAX_BYTES = 2 * REBUILD_CHUNK_SIZE_MAX_BYTES
# A leader remembers the proofs of two minutes, one for each piece of a mebibyte; at a higher rate
# it would refuse pieces.
BACKUP_RATE_MAX_MIB_PER_S = 512
# Time that a backup waits for a group without a leader or without a log to offer: some elections,
# or a broker's restart.
BACKUP_PATIENCE_S = 30.0
# Window before and after its time in which a proof of the cluster key is valid: the largest
# difference of clocks in a cluster.
PEER_PROOF_WINDOW_MS = 60_000
# Remembered nonces of proofs, so that none is valid twice: a copy at full rate needs some thousands
# in one window.
PEER_PROOFS_MAX = 65_536

# Link ---------------------------------------------------------------------------------------------
# One entry and its header in one frame; RocketMQ allows 16 MiB.
FRAME_SIZE_MAX_BYTES = 8 * MIB
# Largest frame of a proxy's sends, so that the broker can fill entries without splitting often.
LANE_SIZE_MAX_BYTES = 1 * MIB
# Requests that a broker holds before it answers `overloaded`: about a second of work at 30,000
# messages/s.
PROPOSALS_SIZE_MAX_BYTES = 64 * MIB
PROPOSALS_MAX = 16_384
# RocketMQ's waitTimeMillsInSendQueue: a broker that is further behind than this refuses sends ...
SEND_QUEUE_AGE_MAX_MS = 200
# ... if it is behind with more requests or more bytes than its next entry clears: one slow
# fdatasync alone is no overload.
SEND_QUEUE_REQUESTS_FREE, SEND_QUEUE_SIZE_FREE_BYTES = 1_024, GROUP_COMMIT_SIZE_MAX_BYTES

# Consumption --------------------------------------------------------------------------------------
RECEIVE_MESSAGES_MAX = 256
RECEIVE_SIZE_MAX_BYTES = 4 * MIB
RECEIVE_SIZE_DEFAULT_BYTES = 1 * MIB
SETTLE_ENTRIES_MAX = 1_024
# Messages received at once from one broker group through one proxy while sends wait: three receives
# of 32. Where all cores are busy, sends beside readers of a backlog took (p99) 2.2 to 2.9 times
# their time alone with eight receives, and 1.2 to 1.4 times with three, at 0.6 of the reading rate.
READING_BESIDE_SENDS_MAX_MESSAGES = 96
# Longer than a turn takes with any sensible number of readers, and far below a client's timeout.
READING_TURN_WAIT_MAX_MS = 250
# A UUID and a word; SQS's ReceiveRequestAttemptId is the model.
ATTEMPT_ID_LENGTH_MAX = 64
# The limit of SQS and of Alibaba's HTTP endpoint: proxies and NAT boxes cut longer waits.
WAIT_MAX_MS = 30_000
INVISIBLE_MIN_MS = 1_000
INVISIBLE_MAX_MS = 12 * 3_600_000
INVISIBLE_DEFAULT_MS = 60_000
# RocketMQ's retryMaxTimes, and the retry delays after attempt 1, 2, ... has failed (its delay
# levels from the third on).
ATTEMPTS_DEFAULT, ATTEMPTS_MAX = 16, 1_000
RETRY_DELAYS_MS = tuple(
    seconds * 1_000 for seconds in (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
# RocketMQ's 18 delay levels, from level 1 on.
DELAY_LEVELS_MS = (1_000, 5_000, *RETRY_DELAYS_MS)
# A consumer's reason for rejecting a message. RocketMQ has none; those of SQS and Azure are about
# as long.
DEAD_LETTER_REASON_SIZE_MAX_BYTES = 1 * KIB
# Dead letters in one page, and in one step of a redrive: some milliseconds of reading.
DEAD_LETTERS_PAGE_MAX = 256
# Redrive tasks that a broker group remembers, running ones included, and failures that each lists
# individually ...
REDRIVE_TASKS_MAX, REDRIVE_FAILURES_MAX = 64, 100
# ... and dead letters that one names individually, and its highest rate, which is far above what a
# group consumes.
REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S = 1_024, 100_000
# Messages under lease for one group in one queue: a group that only receives must not grow the
# state without end.
LEASED_PER_QUEUE_MAX = 65_536
# Leases and retry delays that end in one entry: some 15 ms of work. Those of many queues may end at
# one moment; the others follow at once.
EXPIRES_MAX = 2_048
# Messages that wait behind an earlier one of their message group, for one group in one queue, 8
# bytes each. At this limit the queue is not read further until some are settled, so a message group
# that is stuck for ever stops its queue here.
FIFO_PARKED_PER_QUEUE_MAX = 262_144
# Messages whose message group one entry inspects: about 5 ms of the leader's time ...
FIFO_SCAN_MESSAGES_MAX = 2_048
# ... and the bytes that are read for it.
FIFO_SCAN_SIZE_MAX_BYTES = 4 * MIB
# Rows of LEASE_FIFO in one entry, 24 bytes each: the rows of many receives together stay far below
# an entry's size.
FIFO_ROWS_PER_ENTRY_MAX = 16_384
PULL_MESSAGES_MAX = 16_384
# Distance from the end of the log beyond which reads come mostly from disk: a follower's disk
# serves as well as the leader's.
OLD_DATA_MIN_BYTES = 256 * MIB
# Results of one query by key (RocketMQ's maxMsgsNumBatch), and entries of a key's chain that one
# answer inspects: some 10 ms.
QUERY_MESSAGES_MAX = 64
QUERY_STEPS_MAX = 8_192
# A filter's text from a client: it is part of every receive and is stored with every subscription
# ...
FILTER_SIZE_MAX_BYTES = 1 * KIB
# ... and its terms: tags or SQL tests, where IN has one for each value. Each term costs every
# inspected message some 0.1 us. A property serves better to distinguish more cases.
FILTER_TERMS_MAX = 64
# A filter's text that a broker compiles after a proxy accepted it. The canonical form has more
# blanks than the original (but less than four times as many bytes), and a proxy or a member of an
# earlier build may have accepted more terms. Tokens: about 250 comparisons, some tens of
# microseconds.
FILTER_ACCEPTED_SIZE_MAX_BYTES = 8 * KIB
FILTER_TOKENS_MAX = 1_024
# Nested parentheses and NOTs: more than anyone reads, far less than Python's stack.
FILTER_DEPTH_MAX = 32
# Digits, sign and exponent of a number in a filter or a property; a longer text is not a number.
# Doubles need 24, and the conversion of digits to an integer takes time that grows with their
# square.
FILTER_NUMBER_LENGTH_MAX = 64
# Records that an ordinary filter decides in one call, and the longest time (ms) of one call
# whatever the length of the properties: half of the longest pause allowed for the core loop.
FILTER_PAGE_RECORDS_MAX = 1_024
FILTER_PAGE_MAX_MS = 10
# A month and some days, so that monthly reminders fit. Each hour is one bucket of timers, so there
# are about a thousand.
TIMER_DELAY_MAX_MS = 40 * 24 * 3_600_000
# Scheduled messages on one page of a list: each is read from the log.
SCHEDULED_LISTED_MAX = 256
# Parked long polls at one proxy and notifications at one broker; each costs a few KiB.
PARKED_POLLS_MAX = 10_000
# The default is that of RocketMQ's examples; the maximum is that of a long poll.
REPLY_TIMEOUT_DEFAULT_MS, REPLY_TIMEOUT_MAX_MS = 10_000, WAIT_MAX_MS
# Both are parts of paths, keys and properties: a UUID, or a host with a process id.
CORRELATION_ID_LENGTH_MAX, CLIENT_ID_LENGTH_MAX = 64, 64
# Largest difference of clocks in one cluster: the search for a reply begins this long before the
# birth of its request.
REPLY_CLOCKS_SLACK_MS = 60_000

# Transactions -------------------------------------------------------------------------------------
# RocketMQ's transactionTimeOut, transactionCheckMax and transactionCheckInterval: 6 s, 15 times,
# every 30 s.
CHECK_AFTER_DEFAULT_MS, CHECKS_DEFAULT, CHECK_INTERVAL_DEFAULT_MS = 6_000, 15, 30_000
# An earlier check reaches a client that has had no time to commit; after an hour no client waits,
# and the log keeps the record.
CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS = 100, 3_600_000
CHECKS_MAX = 100
# Longest time of a callback: a checker holds a connection for it.
CHECK_TIMEOUT_DEFAULT_MS, CHECK_TIMEOUT_MIN_MS, CHECK_TIMEOUT_MAX_MS = 3_000, 100, 30_000
# URLs as long as browsers and intermediate proxies accept; 64 random bytes in base64 with their
# prefix.
CHECK_URL_SIZE_MAX_BYTES, CHECK_SECRET_SIZE_MAX_BYTES = 2_048, 128
# Messages of one transaction: an order and its consequences; all are one entry of the log.
TRANSACTION_MESSAGES_MAX = 256
# Records of several messages together: they and their rows are one entry, which one largest message
# alone fills as far.
TRANSACTION_SIZE_MAX_BYTES = MESSAGE_BODY_SIZE_MAX_BYTES + PROPERTIES_SIZE_MAX_BYTES + 64 * KIB
# Open transactions of one producer group: a client that leaves more than this leaks them. Those
# whose checks went unanswered ...
OPEN_PER_PRODUCER_GROUP_MAX, PARKED_PER_PRODUCER_GROUP_MAX = 1_000, 10_000
# ... and open and parked transactions of a broker group, with their messages: at most some 150 MiB
# of state, and 60 MiB in every saved state.
TRANSACTIONS_MAX, HALF_MESSAGES_MAX = 200_000, 1_000_000
# Each costs about 1 KiB and its URL; every broker group has them all.
PRODUCER_GROUPS_MAX = 10_000
# Ended transactions that a broker group remembers, 54 bytes each in memory and in every saved
# state: four minutes at 1,000 a second.
OUTCOMES_KEPT_MAX = 262_144
# Checks of one transaction that are listed individually, the newest; 24 bytes each. The default of
# max_checks, and one more.
CHECKS_KEPT_MAX = 16
# Names of recent checkers and recent answers: more checkers than run at a time, with all their
# answers.
CHECK_TEXTS_MAX = 4_096
# Different recent reasons of ended transactions, up to 256 characters each: some 8 MiB if all are
# long.
REASONS_KEPT_MAX = 16_384
CHECKER_NAME_LENGTH_MAX, CHECK_ANSWER_LENGTH_MAX, RESOLVE_REASON_LENGTH_MAX = 64, 32, 256
# Checks in one claim, as messages in one receive; and the longest claim of one checker, callback
# time not included.
CHECKS_CLAIMED_MAX, CLAIM_MAX_MS = RECEIVE_MESSAGES_MAX, 120_000
# Ends or reports in one request: a lane of them is far below an entry's size.
ENDS_PER_REQUEST_MAX = 16_384

# Replicated state ---------------------------------------------------------------------------------
# With eight queues each costs some 550 bytes at a broker and 750 at a proxy, 15 MiB for all. Twice
# what large installations have.
TOPICS_MAX = 20_000
GROUPS_MAX = 20_000
# Queues of all topics in one broker group: 80 bytes each at a broker, and 16 in every saved state.
QUEUES_MAX = 400_000
# Attributes of one topic or group, so that all of them together stay below 40 MiB.
ATTRIBUTES_MAX = 16
ATTRIBUTE_VALUE_SIZE_MAX_BYTES = 256
ATTRIBUTES_SIZE_MAX_BYTES = 1 * KIB
# Topics or groups on one page of a list; and queues in one description of a group, which is one
# frame.
LISTED_MAX = 1_000
QUEUES_SHOWN_MAX = 20_000
# Rows of topics and of their groups in one answer about the topics of a broker group, 140 bytes
# each: a frame holds twice as many.
HOSTED_ROWS_MAX = 20_000
# Topics and groups listed by name as obstacles to draining a broker group: a screenful or two; the
# others are counted.
LEFT_SHOWN_MAX = 100
# Declarations in flight to one broker group while it joins: they share an entry, and sends are not
# affected.
JOINS_AT_ONCE = 32
# Delays of a group's own retry table, and the shortest first delay of an exponential one: each step
# must grow.
RETRY_DELAYS_KEPT_MAX = 64
RETRY_DELAY_MIN_MS = 100
QUEUES_PER_TOPIC_MAX = 1_024
QUEUES_PER_TOPIC_DEFAULT = 8
# Broker groups that share one topic's keyed and ordered messages; the text of a placement is in the
# route of every topic.
PLACEMENT_GROUPS_MAX = 64
# Changes of one topic's placement: far more than are ever made, in so few digits that a route stays
# short.
PLACEMENT_EPOCH_MAX = 99_999_999
# Time in which a proxy that learns of a topic's move asks name servers for the new placement; they
# have it some ms after the broker group.
PLACEMENT_NEWS_MS = 3_000
# Time for which idempotency keys are remembered (SQS FIFO: 5 minutes) ...
IDEMPOTENCY_WINDOW_MS = 600_000
# ... and their number: 33,000 a second all the time, 3 bytes of memory and 34 of disk each. At the
# limit sends fail with `overloaded`; no key is forgotten early.
IDEMPOTENCY_KEYS_MAX = 20_000_000
# Keys that fill a table, which then becomes a file of 8 MiB. The youngest table is in memory and in
# every saved state.
IDEMPOTENCY_TABLE_KEYS_MAX = 262_144
# Sealed tables, about 15 MB each, that wait for a leader's disk; at the limit the leader accepts no
# more keys.
IDEMPOTENCY_TABLES_WAITING_MAX = 2

# Members of producer and consumer groups ----------------------------------------------------------
# RocketMQ's: a client sends a heartbeat every 30 s, and expires after four missed ones.
HEARTBEAT_INTERVAL_MS = 30_000
MEMBER_EXPIRY_MS = 120_000
# A day: a client that may be silent for longer is not a member.
MEMBER_EXPIRY_MAX_MS = 86_400_000
# More than the queues of most topics; each change of membership inspects all members of its group.
MEMBERS_PER_GROUP_MAX = 1_000
# Members of all groups: 667 heartbeats a second, a few hundredths of a broker group's capacity.
MEMBERS_MAX = 20_000
# Topics of one member, as many as one process reasonably reads ...
SUBSCRIPTIONS_PER_MEMBER_MAX = 64
# ... all its filters and queue names together; those of a group, whose description is one frame;
# and those of all members, which every saved state holds.
HEARTBEAT_SIZE_MAX_BYTES = 32 * KIB
GROUP_MEMBERS_SIZE_MAX_BYTES = 2 * MIB
MEMBERS_SIZE_MAX_BYTES = 32 * MIB
# RocketMQ's: the lock of a queue lasts 60 s, and its holder renews it every 20 s.
QUEUE_LOCK_MS, QUEUE_LOCK_RENEWAL_MS = 60_000, 20_000
# Locked queues of all groups and topics: some 20 MiB of state; each holder is a member.
QUEUE_LOCKS_MAX = 100_000

# Principals ---------------------------------------------------------------------------------------
# Long enough for an address or a SPIFFE-like name; it is part of paths, logs and audit lines.
PRINCIPAL_NAME_LENGTH_MAX, PRINCIPAL_TEXT_LENGTH_MAX = 64, 128
# Every broker group and every proxy has them all. Deleted principals count until they are forgotten
# (below).
PRINCIPALS_MAX = 10_000
# ... all of them together, which every saved state holds; and one: a page of grants, far below an
# entry's size.
PRINCIPALS_SIZE_MAX_BYTES, PRINCIPAL_SIZE_MAX_BYTES = 16 * MIB, 32 * KIB
# Beyond this, names with a common prefix serve better; each grant is evaluated when a right of the
# principal is first checked.
GRANTS_PER_PRINCIPAL_MAX = 100
# The old and the new key during a rotation.
KEYS_LIVE_MAX = 2
# Two proxies may each have made a key while neither reached the other's broker group; a merge keeps
# this many.
KEYS_KEPT_MAX = 8
# Networks of one key; more is the work of a firewall.
KEY_NETWORKS_MAX = 16
# Revoked keys of one principal that are remembered individually, until all older ones are revoked,
# too.
REVOKED_KEPT_MAX = 64
# Time for which a deleted principal is remembered, so that a broker group that was away does not
# bring it back.
DELETED_PRINCIPAL_KEPT_MS = 90 * 24 * 3_600_000
# Interval at which a proxy asks each broker group for changes: a revocation takes effect within the
# interval and an answer, less than 5 s ...
PRINCIPALS_INTERVAL_MS, PRINCIPALS_ANSWER_MS = 2_000, 2_000
# ... and for everything, in case a broker group was recreated: 16 MiB at most. Principals on one
# page of that: some ms of work.
PRINCIPALS_WHOLE_INTERVAL_MS, PRINCIPALS_PAGE_MAX = 300_000, 128
PRINCIPALS_PAGE_SIZE_MAX_BYTES = 1 * MIB

# Credentials at a proxy ---------------------------------------------------------------------------
# A person with a wrong key tries a few times a minute; a faster client is broken or guesses.
# Counted pairs of address and key.
AUTH_FAILURES_PER_MIN, AUTH_FAILURES_KEPT_MAX = 10, 65_536
# Valid keys that are not looked up again until the table of principals changes: 1 KiB each.
SESSIONS_KEPT_MAX = 8_192
# Largest difference between the clocks of a signer and a proxy, as AWS allows; a nonce is
# remembered until its signature is too old ...
SIGNATURE_WINDOW_MS = 300_000
# ... so many of them, 90 bytes each: 3,490 signed requests a second, more than a core verifies.
# When the table is full, requests are refused; no nonce is forgotten early.
SIGNATURE_NONCES_MAX, SIGNATURE_NONCE_LENGTH_MAX = 1_048_576, 64
# Characters of a nonce: shorter ones would collide by chance.
SIGNATURE_NONCE_LENGTH_MIN = 8
# Public keys that are kept ready for verification, 1 KiB each. Fewer than the possible principals;
# decoding one again takes some microseconds.
SIGNATURE_KEYS_KEPT_MAX = 8_192
# Refusals that are audited individually, a second; the others are counted, and the count is
# audited.
AUDITED_REFUSALS_PER_S = 100
# Events that wait for the audit topic while no broker group accepts them, 500 bytes each; the log
# has all of them.
AUDIT_EVENTS_WAITING_MAX = 10_000

# Routes -------------------------------------------------------------------------------------------
# Name servers and proxies remember a broker group that is gone for a day: a night, and the morning
# of the repair.
GONE_GROUP_KEPT_MS = 24 * 3_600_000
# Remembered topics of such groups, each group counting as one more: about 12 MiB, and at least four
# full groups.
GONE_TOPICS_KEPT_MAX = max(64_064, 4 * (TOPICS_MAX + 1))
# Configuration at a name server: names as long as topics, a value that holds the ordered
# configuration of 100 broker groups ...
KV_NAME_SIZE_MAX_BYTES = 128
KV_VALUE_SIZE_MAX_BYTES = 4 * KIB
# ... an ordered configuration for every topic and as many other entries ...
KV_ENTRIES_MAX = 2 * TOPICS_MAX + 1_000
# ... and a file that is written whole with each change: some 10 ms of work.
KV_SIZE_MAX_BYTES = 4 * MIB
# Broker groups whose write permission is withdrawn; far above the groups of any cluster.
WIPED_GROUPS_MAX = 1_000

# HTTP ---------------------------------------------------------------------------------------------
# Reference: RFC 6585 5 (431), RFC 9110 15.5.15 (414). nginx takes 32 KiB, Apache 8 KiB a field: 16
# KiB hold all properties that a message may have.
REQUEST_HEAD_SIZE_MAX_BYTES = 16 * KIB
# A TLS handshake is one round trip and a millisecond of work. asyncio would wait 60 s; nginx and
# Envoy wait 60 and 15 s.
TLS_HANDSHAKE_MAX_MS = 5_000
# A browser behind three proxies sends some 30. Each field costs a callback and an entry before
# authentication. Also for trailers.
REQUEST_FIELDS_MAX = 64
# Our longest path with its longest names is below 1 KiB; the rest is a filter. Longer filters
# travel in bodies.
REQUEST_TARGET_SIZE_MAX_BYTES = 4 * KIB
# A head is one packet or two; a client that needs longer is broken or hostile. Also the time until
# its first byte.
HEAD_DEADLINE_MS = 5_000
# The largest batch in this time is 4.5 Mbit/s; SDKs abandon a request after about this time.
BODY_DEADLINE_MS = 30_000
# ... and never slower than this on average, measured in such steps: a trickling body of a few bytes
# ends after the first step.
BODY_RATE_MIN_BYTES_PER_S, BODY_RATE_STEP_MS = 1 * KIB, 5_000
# A client that does not read its answer holds memory: the same rate, measured in such steps. A
# phone may lose its network for as long.
ANSWER_STEP_MS = 30_000
# A chunk costs a callback whatever its size: the largest batch in chunks of 1 KiB.
CHUNKS_MAX = 16_384
# Largest size of a body on the wire with its chunk headers, extensions and ignored bytes.
BODY_WIRE_SIZE_MAX_BYTES = 2 * BATCH_SIZE_MAX_BYTES
# Pipelined requests behind an unanswered one on a connection, each some 2 KiB: no client is known
# to send more than 16 ahead.
PIPELINED_MAX = 64
# At a name server, a broker or a checker: several times the nodes of a large cluster. This limit
# and those below count connections that have completed a handshake or a head.
CONNECTIONS_MAX = 1_024
# At a Raft port: four peers, each with an old link, a new one, and others that are refused by name.
PEER_CONNECTIONS_MAX = 32
# Connections of one port that have not yet completed a handshake or a head: whatever arrives, a
# newcomer has the turns of the loop that completing takes. With TLS each costs some 100 KB. At a
# proxy as many as its accept queue: all its clients may connect at once.
STRANGERS_MAX, PROXY_STRANGERS_MAX = 256, 1_024
# Replacements of such connections a second at that cap, which cost a loop a fifth of its time: each
# stays 200 ms. Where descriptors are short there are fewer, and each stays at least two round trips
# of one machine room.
STRANGERS_PER_S_MAX, STRANGER_STAY_MIN_MS = 1_280, 10
# At a proxy: each parked poll holds one, some 40 KiB with TLS, 320 MiB for all.
PROXY_CONNECTIONS_MAX = 8_192
# From one address (IPv4) or one network of 64 bits (IPv6, where one host has all of it) that is not
# loopback: eight of them fill a proxy. Many consumers behind one NAT have room.
CONNECTIONS_PER_ADDRESS_MAX = 1_024
# Requests that one process handles at a time, parked and whole ones excluded: at 5 ms each that is
# 100,000 a second, beyond its capacity.
REQUESTS_MAX = 512
# Small sends, acks and settles that came in one piece and wait for their broker. Each is some KiB
# and no task, and a proxy stores this many in a second: as many clients may send at the same time.
WHOLE_REQUESTS_MAX = 4_096
# Parked polls of one principal (or address, without credentials) at one proxy: half of all, so that
# others have room.
PARKED_POLLS_PER_PRINCIPAL_MAX = 4_096
# Nested objects and arrays: people write 5, consumers' parsers accept about 1,000.
JSON_DEPTH_MAX = 32
# Integers have the range of the wire and of most languages: from -2^63 to 2^64 - 1. A larger number
# is a text.
JSON_INTEGER_MIN, JSON_INTEGER_MAX = -(1 << 63), (1 << 64) - 1
# Values of one document, each some 60 bytes in memory: ten for each of 1,024 settles.
JSON_NODES_MAX = 10_000
# Values of a batch, a transaction or a registration: 256 for each message of the largest one, or 10
# and more for each topic.
JSON_BATCH_NODES_MAX = 262_144
# Elements of a list or map in MessagePack before any other check: some 10 MiB at most. Each
# meaningful list has a lower limit.
PACKED_ELEMENTS_MAX = 65_536
# Bytes of request bodies that one proxy holds at a time; more is refused early, never queued.
IN_FLIGHT_SIZE_MAX_BYTES = 128 * MIB
# ... and messages of sends: until it is answered each costs about 1 KiB beside its own bytes. Some
# 4 s of a busy proxy's work.
IN_FLIGHT_MESSAGES_MAX = 131_072
# Time that a proxy looks for a leader before it answers `no-leader`: longer than a handover,
# shorter than a client's patience.
LEADER_WAIT_MS = 1_000
# Time that a proxy waits for a quorum before it answers `outcome-unknown`.
APPEND_DEADLINE_MS = 5_000
# Items in one comparison of the nodes: deliveries (a consumer group at a topic, all queues), and
# rows of every other table; about 1 ms each.
INSPECTED_DELIVERIES_MAX, INSPECTED_ROWS_MAX = 32, 128
# Entries that a group has passed over, each by an operator's order: far more than should ever be
# needed, and 12 KiB.
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
