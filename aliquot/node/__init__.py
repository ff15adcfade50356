"""Processes and devices of a node."""
