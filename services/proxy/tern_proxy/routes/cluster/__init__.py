"""The cluster over HTTP: broker groups with their leaders, and the route of a topic."""
