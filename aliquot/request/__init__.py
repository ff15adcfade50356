"""What a pod asks for, and what it was given."""
