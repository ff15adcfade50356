"""How tenants share a card's time and memory while they run."""
