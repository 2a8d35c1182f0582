"""Limits of planned reads, each with its reason."""

from tern_wire.limits import FRAME_SIZE_MAX_BYTES, JSON_BATCH_NODES_MAX, MIB

# Topics of one plan: a pattern that matches more is split by its client.
READ_PLAN_TOPICS_MAX = 256
# Queues of one plan, over all its topics, and cuts that it may have in one broker group: an answer
# is one frame, some 100 bytes a queue and 9 a cut.
READ_PLAN_QUEUES_MAX, READ_PLAN_CUTS_MAX = 20_000, 65_536
# Body of a plan or of a lease: begin, end and budget of each queue, 50 bytes and two values each.
READ_BODY_SIZE_MAX_BYTES = 4 * MIB
# Rows of queues that one plan sums up in a broker group, 20 bytes each, in slices of 5 ms beside
# other work: 0.35 s of CPU for all. Over more, a plan says how far it came.
READ_PLAN_ROWS_MAX = 16_777_216

# Leases of planned reads -------------------------------------------------------------------------
# Time of a read lease by default, and its bounds: a job that renews every 20 minutes may miss two
# renewals, and a reader that died holds the disk for a day at most.
READ_LEASE_DEFAULT_MS, READ_LEASE_MIN_MS, READ_LEASE_MAX_MS = 3_600_000, 1_000, 24 * 3_600_000
# Leases in a broker group, and those of one principal: dozens of jobs at a time, each with some.
READ_LEASES_MAX, READ_LEASES_PER_PRINCIPAL_MAX = 512, 64
# Queues of one lease in a broker group, and of all leases there: 24 bytes each in memory, in every
# saved state and in every copy, 3 MiB for all.
READ_LEASE_QUEUES_MAX, READ_LEASED_QUEUES_MAX = 20_000, 131_072
# Leases in one comparison of the nodes: about 1 ms if they are large.
READ_LEASES_INSPECTED_MAX = 8

assert READ_LEASE_MIN_MS < READ_LEASE_DEFAULT_MS < READ_LEASE_MAX_MS
assert READ_LEASES_PER_PRINCIPAL_MAX < READ_LEASES_MAX
assert READ_LEASE_QUEUES_MAX == READ_PLAN_QUEUES_MAX < READ_LEASED_QUEUES_MAX
assert READ_PLAN_QUEUES_MAX * 3 * 50 < READ_BODY_SIZE_MAX_BYTES
assert READ_PLAN_QUEUES_MAX * 3 * 2 + READ_PLAN_TOPICS_MAX * 8 < JSON_BATCH_NODES_MAX
assert READ_PLAN_QUEUES_MAX * 100 + READ_PLAN_CUTS_MAX * 9 < FRAME_SIZE_MAX_BYTES
