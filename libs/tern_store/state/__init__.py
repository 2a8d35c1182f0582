"""Saved states of the state machine, and the node's votes."""
