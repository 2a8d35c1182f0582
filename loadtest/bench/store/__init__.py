"""What the store costs, beside bare file loops: `make bench-store`."""
