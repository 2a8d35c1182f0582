"""Limits of staged batches and their publication, each with its reason."""

from tern_wire.limits import BATCH_MESSAGES_MAX, ENTRY_SIZE_MAX_BYTES, JSON_BATCH_NODES_MAX

# Messages that are staged in a broker group: 48 bytes each in memory, in every saved state and in
# every copy, 96 MB for all.
STAGED_MESSAGES_MAX = 2_000_000
# Messages that one batch publishes in one entry: 0.15 s of apply on every node, within the silence
# that a follower tolerates (0.5 s). A query has one batch under way and perhaps one that it has
# given up.
PUBLISHED_MESSAGES_MAX = 1_000_000
# Stages of one publication: its request is one map of some 400 KiB.
PUBLISHED_STAGES_MAX = 16_384
# Its body: 85 bytes for each stage in JSON.
PUBLICATION_BODY_SIZE_MAX_BYTES = 2 << 20
# Queries whose broker group a proxy remembers, some 200 bytes each.
QUERY_HOMES_MAX = 10_000
# Topics of one query: a proxy looks each of them up.
PUBLISHED_TOPICS_MAX = 64
# Chunks that are staged in a broker group: some 200 bytes each beside their messages.
STAGED_CHUNKS_MAX = 200_000
# Queries of which a broker group knows the last batch, and how long: less than 200 bytes each. A
# query that comes back after a month has lost its history. One whose batch was its last can only
# repeat that batch, as long as its driver lives.
PUBLICATIONS_MAX, PUBLICATION_KEPT_MS, FINAL_PUBLICATION_KEPT_MS = 10_000, 30 * 24 * 3_600_000, 3_600_000
# Life of a stage after its last chunk: a slow task may pause, and what is abandoned frees its disk.
STAGE_LIFE_DEFAULT_MS, STAGE_LIFE_MIN_MS, STAGE_LIFE_MAX_MS = 3_600_000, 600_000, 24 * 3_600_000
# Chunks in one comparison of the nodes, 48 KiB each at most: about 1 ms. Published messages whose
# keys are not indexed yet are in pieces of a similar size.
CHUNKS_INSPECTED_MAX, UNINDEXED_PIECE_MESSAGES = 16, 2_048
# Bytes of published records that every node reads in one entry, for their keys.
PUBLISHED_KEYS_STEP_SIZE_BYTES = 4 << 20
# Name of a query: a UUID takes 36.
QUERY_NAME_SIZE_MAX_BYTES = 64
# Rows of a listing: stages of one query.
STAGES_SHOWN_MAX = 1_024

assert BATCH_MESSAGES_MAX <= PUBLISHED_MESSAGES_MAX <= STAGED_MESSAGES_MAX
assert PUBLISHED_STAGES_MAX * 24 + 4_096 < ENTRY_SIZE_MAX_BYTES
assert PUBLISHED_STAGES_MAX * 85 < PUBLICATION_BODY_SIZE_MAX_BYTES
assert PUBLISHED_STAGES_MAX * 4 < JSON_BATCH_NODES_MAX
assert STAGE_LIFE_MIN_MS < STAGE_LIFE_DEFAULT_MS < STAGE_LIFE_MAX_MS
