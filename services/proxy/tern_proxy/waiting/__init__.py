"""Requests that wait: parked polls, turns of readers, room for reads, and what ends a wait before its time."""
