"""Principals, their keys and grants, and how callers prove who they are."""
