"""Simulated libcuda.so.1 and libnvidia-ml.so.1, in C."""
