"""Limits of planned reads, each with its reason."""

from tern_wire.limits import FRAME_SIZE_MAX_BYTES

# Topics of one plan: a pattern that matches more is split by its client.
READ_PLAN_TOPICS_MAX = 256
# Queues of one plan, over all its topics, and cuts that it may have in one broker group: an answer
# is one frame, some 100 bytes a queue and 9 a cut.
READ_PLAN_QUEUES_MAX, READ_PLAN_CUTS_MAX = 20_000, 65_536
# Rows of queues that one plan sums up in a broker group, 20 bytes each, in slices of 5 ms beside
# other work. Over more, a plan says how far it came.
READ_PLAN_ROWS_MAX = 4_194_304

assert READ_PLAN_QUEUES_MAX * 100 + READ_PLAN_CUTS_MAX * 9 < FRAME_SIZE_MAX_BYTES
