"""`ternmq demo`: real work through the whole mesh, checked at the end.

Kept empty of imports: processes of the demos live below it, and start again and again.
"""
