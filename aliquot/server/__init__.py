"""What every service has: TLS, authentication, limits, metrics, logging."""
