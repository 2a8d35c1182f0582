"""Offsets over HTTP: what queues hold, where groups are, and groups moved."""
