"""Waiting requests: parked polls, turns of readers, room for reads, and interrupts of waits."""
