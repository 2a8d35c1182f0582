"""Requests over HTTP: messages whose senders wait for a reply."""
