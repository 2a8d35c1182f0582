"""What transactions cost: `make bench-transactions`."""
