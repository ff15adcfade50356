"""What a container with a slice finds: its pages, the interceptor, the CDI spec."""
