"""Where a client's settings come from: arguments, the environment, named contexts."""
