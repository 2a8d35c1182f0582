"""Transactions in the SDK: producers, courses of a transaction, checks and their callbacks."""
