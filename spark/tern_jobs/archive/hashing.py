"""The hash of a file's bytes, read in pieces."""

import hashlib

from tern_jobs.archive.folder import ArchiveFolder

_PIECE_SIZE_BYTES = 4 * 1024 * 1024


def file_hash(folder: ArchiveFolder, path: str) -> tuple[int, str]:
    """Return the size of a file in bytes, and the SHA-256 of its content."""
    whole, size_bytes = hashlib.sha256(), 0
    with folder.open(path) as source:
        while piece := source.read(_PIECE_SIZE_BYTES):
            whole.update(piece)
            size_bytes += len(piece)
    return size_bytes, whole.hexdigest()
