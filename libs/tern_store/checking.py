"""What a verification yields: progress, between the damage that it finds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """So many more bytes were read and found good."""

    size_bytes: int
