"""Checks of a node's files: each reports what is damaged, where, and what the damage costs."""
