"""Tails over HTTP: a topic's messages as they come, as server-sent events or NDJSON."""
