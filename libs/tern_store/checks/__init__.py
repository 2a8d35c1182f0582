"""Checks of files: what is damaged, where, and what it costs."""
