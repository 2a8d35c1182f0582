"""Consume queues: rows of fixed size in files, by topic and queue."""
