"""The transaction checker: requests outcomes of open transactions from producers and ends them.

It is stateless: claims share the work among checkers.
"""
