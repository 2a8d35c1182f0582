"""Timers: what is to happen at a time, in buckets on disk."""
