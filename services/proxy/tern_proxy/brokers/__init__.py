"""The way to the broker groups: routes, links, the lanes that requests travel in, and reads of old data from followers."""
