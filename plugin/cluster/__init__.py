"""What the node agent reads from the API server and publishes there."""
