"""The cards of this node, read from NVML and sysfs, and the driver's files."""
