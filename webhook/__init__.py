"""The admission webhook: reads what a pod asks for and injects the interceptor."""
