"""Transactions over HTTP: begun, ended, described, listed, resolved by hand; and the checks that ask what became of them."""
