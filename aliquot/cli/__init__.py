"""The aliquot command."""
