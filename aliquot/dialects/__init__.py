"""Other projects' resource names, each translated to ours."""
