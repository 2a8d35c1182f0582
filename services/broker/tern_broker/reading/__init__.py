"""Reads beside the state machine: pages of queues, scans, queries, statistics."""
