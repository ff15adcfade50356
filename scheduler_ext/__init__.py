"""The scheduler extender: decides which pod gets which part of which card."""
