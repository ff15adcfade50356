"""What the tests need beyond Python packages, brought into a cache."""
