"""Principals over HTTP: their grants and keys, declared, described, listed, deleted, revoked."""
