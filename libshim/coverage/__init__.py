"""What the hook table covers: the report on it, and the comparison with CUDA's newest list of functions."""
