"""The checks of `aliquot doctor`, one subject a file."""
