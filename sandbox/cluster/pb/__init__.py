"""Generated from `../proto` by `python -m aliquot.sandbox.cluster.generate`; only this file is written by hand."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
"""The pool of these copies of Kubernetes' messages, apart from any other copy in the process."""
