"""The transaction checker: asks producers for the outcome of open transactions, and ends them.

It is stateless: claims share the work among checkers.
"""
