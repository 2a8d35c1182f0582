"""Members of groups over HTTP: heartbeats, who reads which queues, and locks of queues."""
