"""The custom resources of Aliquot."""
