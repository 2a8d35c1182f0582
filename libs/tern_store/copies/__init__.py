"""A node's copy of another one's log: what is read, sent, and swapped in."""
