"""What `aliquot run` does on a machine without Kubernetes."""
