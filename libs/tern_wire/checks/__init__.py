"""Callbacks that check transactions: which URLs and addresses may be called, and what an answer is."""
