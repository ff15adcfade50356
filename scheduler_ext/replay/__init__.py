"""Replays a trace of pods against the very code that places pods in a cluster."""
