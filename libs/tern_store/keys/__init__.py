"""Idempotency keys of messages sent: sealed files and their filter."""
