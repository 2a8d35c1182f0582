"""The cluster key: 32 bytes in a file readable by its owner alone, equal in all processes."""

from pathlib import Path

CLUSTER_KEY_SIZE_BYTES = 32


def read_cluster_key(path: Path) -> bytes:
    """Read the key; ValueError with the fix if it is missing, readable by others, or of another
    size.
    """
    try:
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"The cluster key {path} cannot be read ({error.strerror}); see --cluster-key-file."
        ) from error
    if mode & 0o077:
        raise ValueError(f"The cluster key {path} can be read by others; run: chmod 600 {path}")
    if len(key) != CLUSTER_KEY_SIZE_BYTES:
        raise ValueError(f"The cluster key {path} has {len(key)} bytes; it must have {CLUSTER_KEY_SIZE_BYTES}.")
    return key
