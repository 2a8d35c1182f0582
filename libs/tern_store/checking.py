"""Progress of a verification, yielded between the damage that it finds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """This many more bytes were read and are intact."""

    size_bytes: int
