"""Which pods may be evicted for others, and the room that is kept meanwhile."""
