"""`ternmq demo`: real workloads through the whole mesh, verified at the end."""
