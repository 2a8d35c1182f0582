"""Classes of errors by subject. The table of all errors, which imports them, is errors.py."""
