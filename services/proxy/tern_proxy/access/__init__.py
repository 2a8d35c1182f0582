"""Callers and their rights: credentials, permissions, namespaces, and the cache of principals."""
