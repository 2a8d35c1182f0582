"""Timers: messages with a future delivery time, kept in buckets on disk."""
