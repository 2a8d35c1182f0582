"""Callbacks that check transactions: the URLs and addresses that may be called, and the signatures
of answers.
"""
