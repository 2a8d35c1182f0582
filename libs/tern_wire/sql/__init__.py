"""Filters in SQL92: text, tree, and what it decides."""
