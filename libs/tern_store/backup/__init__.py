"""Backups of a group at one cut, and restores."""
