"""Chaos: everything that can happen to a cluster at random, and an auditor that looks after each act."""
