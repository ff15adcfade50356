"""Files, directories and values that change."""
