"""Members of consumer groups, decided purely: heartbeats, assignments, locks of queues."""
