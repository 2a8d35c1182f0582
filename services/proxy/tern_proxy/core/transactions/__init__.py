"""Transactions, decided purely: begins, ends, checks, and the producer groups that own them."""
