"""The sub-commands of `aliquot`."""
