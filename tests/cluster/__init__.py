"""Tests on real Kubernetes components, run as plain processes of this machine."""
