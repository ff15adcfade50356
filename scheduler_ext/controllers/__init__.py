"""Loops that run on the leader: informers, evictions, and clean-up."""
