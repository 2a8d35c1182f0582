"""Transactions over HTTP: begun, ended, described, listed, resolved by an operator; and their
checks.
"""
