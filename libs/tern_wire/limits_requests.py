"""Limits of requests in arrival: shares of a process's room, and the minimum rate of a body.

Law: a request is charged for the bytes that have arrived. A declared length takes no room from
others, and refuses only the request that declares it.

      0 ........................................ 3/4 ............. 1   of a room
      | everything, by shares ................... | small requests |

Sizes are bytes and times are milliseconds, unless a name says otherwise. See limits.py.
"""

from tern_wire.limits import (
    ANSWER_STEP_MS,
    BATCH_SIZE_MAX_BYTES,
    BODY_DEADLINE_MS,
    BODY_RATE_MIN_BYTES_PER_S,
    IN_FLIGHT_MESSAGES_MAX,
    IN_FLIGHT_SIZE_MAX_BYTES,
    KIB,
    MESSAGE_BODY_SIZE_MAX_BYTES,
    MIB,
    RECEIVE_SIZE_MAX_BYTES,
)

# Shares -------------------------------------------------------------------------------------------
# A body is small up to this size: an ack of 1,024 handles, a receive that settles as many, an
# ordinary send.
SMALL_BODY_SIZE_MAX_BYTES = 256 * KIB
# ... and a batch up to this size: the messages that a client gathers in some milliseconds.
SMALL_BATCH_MESSAGES_MAX = 64
# One part in so many of each room is reserved for small requests, so that large requests never stop
# sends, receives and acks.
SMALL_RESERVE_SHARE = 4
# While less than one part in so many of a room is held, small requests that arrived whole are
# charged to nobody: they end within milliseconds.
CALM_SHARE = 4
# An owner may hold at most this multiple of the free room: two thirds of a room for the first, and
# two thirds of the rest for the next. As requests end and others begin, N owners converge to 2 of
# 2N + 1 parts each. Reference: Choudhury and Hahne, dynamic queue length thresholds.
SHARE_OF_FREE = 2

# Bodies under way ---------------------------------------------------------------------------------
# A larger body must arrive faster: over two steps, at no less than its arrived bytes divided by
# this time. The largest batch then needs 140 KB/s, a quarter of the rate that completes it in time.
# A body that stops near its end is refused within two steps.
BODY_HOLD_MAX_S = 120
# Framing of a chunked body beside its bytes: the sizes and ends of all allowed chunks are below 16
# bytes each ...
CHUNK_FRAMING_SIZE_BYTES = 16
# ... and this much for extensions, which are ignored, and trailers.
CHUNK_FRAMING_FREE_BYTES = 32 * KIB

# Answers that are not taken -----------------------------------------------------------------------
# Bytes that wait for clients in one process, beside those in the kernel's buffers (some MB each on
# loopback): 64 of the largest pulls ...
UNSENT_ANSWERS_SIZE_MAX_BYTES = 256 * MIB
# ... beyond which connections are closed whose answers have waited this long. A client that is only
# slow to read its socket is back by then.
UNSENT_HELD_MIN_MS = 10_000

# Connections --------------------------------------------------------------------------------------
# A port at its cap searches its connections for idle ones at most this often: each search costs
# some milliseconds.
IDLE_LOOK_INTERVAL_MS = 100

assert 4 * MESSAGE_BODY_SIZE_MAX_BYTES <= BATCH_SIZE_MAX_BYTES
# Beside an owner that holds its maximum, a batch of the largest size has room.
_LARGE_BYTES = IN_FLIGHT_SIZE_MAX_BYTES - IN_FLIGHT_SIZE_MAX_BYTES // SMALL_RESERVE_SHARE
_LEFT_BYTES = _LARGE_BYTES // (SHARE_OF_FREE + 1)
assert BATCH_SIZE_MAX_BYTES <= SHARE_OF_FREE * (_LEFT_BYTES - BATCH_SIZE_MAX_BYTES)
# The reserve holds a hundred of the largest small requests.
assert 100 * SMALL_BODY_SIZE_MAX_BYTES <= IN_FLIGHT_SIZE_MAX_BYTES // SMALL_RESERVE_SHARE
assert 100 * SMALL_BATCH_MESSAGES_MAX <= IN_FLIGHT_MESSAGES_MAX // SMALL_RESERVE_SHARE
assert BATCH_SIZE_MAX_BYTES // BODY_HOLD_MAX_S * 2 < BATCH_SIZE_MAX_BYTES * 1_000 // BODY_DEADLINE_MS
assert SMALL_BODY_SIZE_MAX_BYTES < 1 * MIB
assert UNSENT_HELD_MIN_MS < ANSWER_STEP_MS
assert 64 * RECEIVE_SIZE_MAX_BYTES <= UNSENT_ANSWERS_SIZE_MAX_BYTES
assert BODY_HOLD_MAX_S * BODY_RATE_MIN_BYTES_PER_S < SMALL_BODY_SIZE_MAX_BYTES
# One place in so many for requests in progress is closed to reads: consumers come in masses, and
# all at once after a pause; sends and settles still find a place.
READS_SPARE_SHARE = 4
