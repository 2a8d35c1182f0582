"""Principals over HTTP: declared, described, listed, deleted; their grants, and their keys made and
revoked.
"""
