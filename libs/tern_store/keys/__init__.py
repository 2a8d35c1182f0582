"""Idempotency keys of sent messages: sealed files and their filter."""
