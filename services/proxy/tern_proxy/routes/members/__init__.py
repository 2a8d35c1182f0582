"""Members of groups over HTTP: heartbeats, assignments of queues, and locks of queues."""
