"""The pocket cluster's API server: Kubernetes' REST protocol over HTTPS, state in one directory."""
