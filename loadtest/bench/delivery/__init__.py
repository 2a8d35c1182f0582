"""What delivery costs: order, keys, delay, filters, topics, backlogs: `make bench-delivery`."""
