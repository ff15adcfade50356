"""Which node and which cards a pod gets, and what that costs other pods."""
