"""What the imports and the recovery of a start have left free goes back to the kernel: some MB a process, for ever otherwise."""

import ctypes
import gc


def release_free_memory() -> None:
    """Once, when a service is up. Without glibc nothing happens."""
    gc.collect()
    gc.freeze()  # what is there now stays: collections need not look at it again
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
