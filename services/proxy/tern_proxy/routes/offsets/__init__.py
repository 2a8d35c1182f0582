"""Offsets over HTTP: bounds of queues, committed offsets of groups, and seeks."""
