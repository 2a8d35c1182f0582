"""`ternmq demo`: real work through the whole mesh, checked at the end."""
