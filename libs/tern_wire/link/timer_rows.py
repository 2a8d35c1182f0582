"""Timer rows: one per scheduled message, 48 bytes, big-endian.

   0              8            16           24       28           32        36        40
   | deliver_ms 8 | timer id 8 | position 8 | size 4 | topic id 4 | queue 4 | flags 4 | tag hash 8 |

*position* and *size* are the record's in the commit log, *tag hash* that of its tag: the row alone
is enough to make a consume queue entry. The timer id is unique within a broker group: it is the
position at which the record was first stored, while *position* changes when retention moves the
record. FLAG_CANCELLED is the store's own: such a row cancels another one, has its time and id, and
has its number in the sequence in *position*. All other flags belong to the caller.
"""

import numpy as np

TIMER_ROWS = np.dtype(
    [
        ("deliver_ms", ">i8"),
        ("timer_id", ">i8"),
        ("position", ">i8"),
        ("size", ">u4"),
        ("topic_id", ">u4"),
        ("queue", ">u4"),
        ("flags", ">u4"),
        ("tag", ">i8"),
    ]
)
TIMER_ROW_SIZE_BYTES = TIMER_ROWS.itemsize
assert TIMER_ROW_SIZE_BYTES == 48
FLAG_CANCELLED = 1 << 31
