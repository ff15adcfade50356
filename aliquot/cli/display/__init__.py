"""What commands print, and how."""
