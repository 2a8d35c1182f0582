"""Requests that wait at the broker for an event, by deadline, and the delivery of their answers."""
