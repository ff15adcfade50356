"""What namespaces may have: limits, guarantees, borrowing, and fair shares."""
