"""Limits of tails: streams of a topic's new messages to people and dashboards.

Sizes are bytes and times are milliseconds, unless a name says otherwise. See limits.py.
"""

from tern_wire.limits import KIB, QUEUES_PER_TOPIC_MAX, REQUEST_HEAD_SIZE_MAX_BYTES
from tern_wire.limits_requests import UNSENT_ANSWERS_SIZE_MAX_BYTES

# What a tail reads before it writes it, and what it holds at most beside one message that is
# larger. A page is some ms of work for the proxy.
TAIL_PAGE_SIZE_BYTES, TAIL_PAGE_MESSAGES = 256 * KIB, 256
# Streams at one proxy. If no client takes its answer, they hold a page each: half of what all
# unsent answers may hold.
TAILS_MAX = 512
# ... and of one principal (or address, without credentials): more than a person watches, and
# sixteen such principals before others find no room. A service that needs more is a consumer group.
TAILS_PER_PRINCIPAL_MAX = 32
# Queues of one topic in all broker groups. An event id has the place in each of them and travels in
# a request header.
TAIL_QUEUES_MAX = 1_024
# Characters of an event id: at most 9 bytes for each place, and its topic's names, in base64.
TAIL_ID_LENGTH_MAX = 15_000
# A silent stream says that often that it lives: proxies and NAT boxes cut after 30 to 60 s.
TAIL_HEARTBEAT_MS = 15_000
# Pause of a client before it connects again, unless it has a better idea.
TAIL_RETRY_MS = 1_000
# Longest silence after which a client may have its stream ended; the number of messages after which
# it may is that of a day at a high rate.
TAIL_IDLE_MAX_MS, TAIL_MESSAGES_MAX = 86_400_000, 1_000_000_000

assert TAILS_MAX * TAIL_PAGE_SIZE_BYTES <= UNSENT_ANSWERS_SIZE_MAX_BYTES // 2
assert 16 * TAILS_PER_PRINCIPAL_MAX <= TAILS_MAX
assert QUEUES_PER_TOPIC_MAX <= TAIL_QUEUES_MAX
assert TAIL_QUEUES_MAX * 9 * 4 // 3 < TAIL_ID_LENGTH_MAX < REQUEST_HEAD_SIZE_MAX_BYTES
