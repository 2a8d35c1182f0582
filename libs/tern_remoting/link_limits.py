"""What one link may hold, in counts, bytes and seconds. Credit of large answers has its own figures: credit.py."""

# Requests of ours that a peer may owe us an answer to; as many as a broker holds proposals.
IN_FLIGHT_MAX = 16_384
# Reads may owe this much of it, so that sends and settles always find a place.
READS_IN_FLIGHT_MAX = IN_FLIGHT_MAX * 3 // 4
# Bytes waiting for the kernel: eight of the largest frames. Requests and posts are refused above it; replies are not: large ones have
# credit, and small ones are as few as requests in flight.
BUFFERED_SIZE_MAX_BYTES = 64 * 1024 * 1024
# Up to here one joined write is cheaper than a vector of small ones.
JOIN_SIZE_MAX_BYTES = 64 * 1024
# How long a closing link may take to hand its last bytes to the peer.
CLOSE_GRACE_S = 1.0
