"""The limits of requests that are on their way into a process: who holds how much of its room, and how fast a body must come. See limits.py.

Law: what is charged is what has arrived. What a head announces takes no room from anybody, and refuses nobody but the one who announces it.

      0 ........................................ 3/4 ............. 1   of a room
      | everything, by shares ................... | small requests |

Sizes are bytes, times are milliseconds, unless a name says otherwise.
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

# Shares -----------------------------------------------------------------------------------------------------------
# A body is small up to here: an ack of 1,024 handles, a receive that settles as many, a send of ordinary size.
SMALL_BODY_SIZE_MAX_BYTES = 256 * KIB
# ... and a batch up to here: what a client gathers in some milliseconds.
SMALL_BATCH_MESSAGES_MAX = 64
# Of each room this part is for what is small, so that large requests of anybody never stop sends, receives and acks.
SMALL_RESERVE_SHARE = 4
# While less than this part of a room is held, small requests that came whole are nobody's share: they are gone within milliseconds.
CALM_SHARE = 4
# An owner may hold so many times what is left free: two thirds of a room, and whoever comes then two thirds of what that leaves. As requests
# end and others begin, N owners come to 2 of 2N + 1 parts each. Reference: Choudhury and Hahne, dynamic queue length thresholds.
SHARE_OF_FREE = 2

# Bodies under way -------------------------------------------------------------------------------------------------
# Who holds more must send faster: a body comes, over two steps, at no less than what has come of it in so many seconds. The largest batch
# needs 140 KB/s then, a quarter of what it needs to be whole in time; whoever stops near its end is gone within two steps.
BODY_HOLD_MAX_S = 120
# Framing of a body in chunks beside its bytes: sizes and ends of all chunks that it may have are below 16 bytes each ...
CHUNK_FRAMING_SIZE_BYTES = 16
# ... and so much for extensions, which nobody reads, and trailers.
CHUNK_FRAMING_FREE_BYTES = 32 * KIB

# Answers that are not taken -----------------------------------------------------------------------------------------
# Bytes that wait for clients in one process, beside what the kernel holds for them (some MB each on loopback): 64 of the largest pulls ...
UNSENT_ANSWERS_SIZE_MAX_BYTES = 256 * MIB
# ... beyond which those are broken off that have waited for so long. A client that is only slow in turning to its socket is back by then.
UNSENT_HELD_MIN_MS = 10_000

# Connections ------------------------------------------------------------------------------------------------------
# At its cap a port looks through all its connections for idle ones no more often than this: each look costs some milliseconds.
IDLE_LOOK_INTERVAL_MS = 100

assert 4 * MESSAGE_BODY_SIZE_MAX_BYTES <= BATCH_SIZE_MAX_BYTES
# Beside an owner that takes all it may, a whole batch of the largest size has room.
_LARGE_BYTES = IN_FLIGHT_SIZE_MAX_BYTES - IN_FLIGHT_SIZE_MAX_BYTES // SMALL_RESERVE_SHARE
_LEFT_BYTES = _LARGE_BYTES // (SHARE_OF_FREE + 1)
assert BATCH_SIZE_MAX_BYTES <= SHARE_OF_FREE * (_LEFT_BYTES - BATCH_SIZE_MAX_BYTES)
# The reserve takes a hundred of the largest small ones.
assert 100 * SMALL_BODY_SIZE_MAX_BYTES <= IN_FLIGHT_SIZE_MAX_BYTES // SMALL_RESERVE_SHARE
assert 100 * SMALL_BATCH_MESSAGES_MAX <= IN_FLIGHT_MESSAGES_MAX // SMALL_RESERVE_SHARE
assert BATCH_SIZE_MAX_BYTES // BODY_HOLD_MAX_S * 2 < BATCH_SIZE_MAX_BYTES * 1_000 // BODY_DEADLINE_MS
assert SMALL_BODY_SIZE_MAX_BYTES < 1 * MIB
assert UNSENT_HELD_MIN_MS < ANSWER_STEP_MS
assert 64 * RECEIVE_SIZE_MAX_BYTES <= UNSENT_ANSWERS_SIZE_MAX_BYTES
assert BODY_HOLD_MAX_S * BODY_RATE_MIN_BYTES_PER_S < SMALL_BODY_SIZE_MAX_BYTES
# Of the requests that are worked on at a time, one part in so many is never taken by reads: consumers come in masses, and at once after a pause;
# sends and settles then find a place.
READS_SPARE_SHARE = 4
