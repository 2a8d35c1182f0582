"""Link requests for dead letters of consumer groups, and for redrives of them."""
