"""What the checks of `aliquot doctor` look at."""
