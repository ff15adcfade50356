"""What the pods that were admitted on this node have of its cards."""
