"""Requests that wait at the broker for something to happen, by deadline, and how they are told."""
