"""`ternmq definitions`: topics, groups, producer groups and principals as a file that is kept in
version control.
"""
