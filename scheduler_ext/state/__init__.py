"""What the extender knows of pods and nodes, and what it has promised."""
