"""The words that services and users write to each other."""
