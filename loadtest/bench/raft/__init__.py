"""What a replicated log costs, three nodes on this machine: `make bench-raft`."""
