"""Principals, their keys and grants, and the proofs of callers."""
