"""The CUDA interceptor and the reader of its pages."""
