"""Limits of one link in counts, bytes and seconds. credit.py has those of large replies."""

# Requests without a reply from one peer; as many as a broker holds proposals.
IN_FLIGHT_MAX = 16_384
# Share of reads among them, so that sends and settles always find a place.
READS_IN_FLIGHT_MAX = IN_FLIGHT_MAX * 3 // 4
# Bytes waiting for the kernel: eight of the largest frames. Requests and posts are refused above
# it; replies are not: large ones have credit, and small ones are as few as requests in flight.
BUFFERED_SIZE_MAX_BYTES = 64 * 1024 * 1024
# Up to this size one joined write is cheaper than a vector of small ones.
JOIN_SIZE_MAX_BYTES = 64 * 1024
# Time for a closing link to pass its last bytes to the peer.
CLOSE_GRACE_S = 1.0
