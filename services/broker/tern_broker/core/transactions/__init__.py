"""Transactions, decided purely: open ones, ends, checks and their outcomes."""
