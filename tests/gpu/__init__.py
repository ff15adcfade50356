"""The quota on a real card, with the libraries that people use. `make test-gpu` runs it; `make test` leaves it out."""
