"""Sizes of each bench of the store: a full run, and a quick test that it works."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes in bytes, counts of messages; a round is one turn of A B A B."""

    segment_size_bytes: int = 1024 * MIB
    # Short rounds, many of them: a shared disk changes its speed within seconds.
    append_size_bytes: int = 16 * MIB
    append_rounds: int = 25
    scan_size_bytes: int = 500 * MIB
    rounds: int = 7
    apply_messages: int = 43_000
    written_messages: int = 400_000
    pull_size_bytes: int = 500 * MIB
    queues: int = 10_000
    queue_messages: int = 43_000
    large_messages: int = 5_000_000
    # The log's sizes at which memory is compared.
    memory_sizes_bytes: tuple[int, int] = (500 * MIB, 5_000 * MIB)
    # A state is saved every 64 MiB, and the log grows during a save: twice the interval is ample.
    unsaved_size_bytes: int = 128 * MIB
    restarts: int = 3
    lookups: int = 300

    @property
    def disk_size_bytes(self) -> int:
        """The disk space for the largest bench, with room to spare.

        Two segments ahead, queues, index.
        """
        return max(self.large_messages * 1_500, self.memory_sizes_bytes[1]) + 4 * self.segment_size_bytes


FULL = Sizes()
QUICK = Sizes(
    append_rounds=7,
    scan_size_bytes=100 * MIB,
    rounds=3,
    apply_messages=13_000,
    written_messages=100_000,
    pull_size_bytes=100 * MIB,
    queue_messages=13_000,
    large_messages=200_000,
    memory_sizes_bytes=(50 * MIB, 200 * MIB),
    restarts=1,
    lookups=100,
)
