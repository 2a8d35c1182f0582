"""What the imports and the recovery of a start have left free goes back to the kernel, and garbage collections stay short.

A full collection looks at every object that there is, about 1 us each on a slow core, while nothing else happens: with 9,000 connections and their
250,000 objects a pause of 200 ms. What was there at the start is never looked at again, and the rest seldom: objects of a request are young
when they die, and a connection leaves nothing behind (answers.py).
"""

import ctypes
import gc

# Of young objects, as Python has it; full collections ten times less often. Between two of them come some 700,000 new objects that stay, so what
# only a full one finds is 100 MB, at most.
YOUNG_OBJECTS, YOUNG_COLLECTIONS, MIDDLE_COLLECTIONS = 700, 10, 100


def release_free_memory() -> None:
    """Once, when a service is up. Without glibc nothing goes back."""
    gc.collect()
    gc.freeze()  # what is there now stays: collections need not look at it again
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, MIDDLE_COLLECTIONS)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
