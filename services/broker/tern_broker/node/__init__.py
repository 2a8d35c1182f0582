"""The node's work beside its core loop: HTTP, heartbeats, status, and copies of the leader's
log.
"""
