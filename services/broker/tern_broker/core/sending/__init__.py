"""Sends, decided purely: verdicts, idempotency keys, placement, half messages."""
