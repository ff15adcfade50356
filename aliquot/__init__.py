"""What all services share: units, requests, placements, inventory, Kubernetes access."""
