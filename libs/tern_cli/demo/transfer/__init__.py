"""`ternmq demo transfer`: money between two banks through transactional messages, while producers crash; proved to the cent at the end."""
