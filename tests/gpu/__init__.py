"""The quota on a real card, with libraries that people use. `make -C tests gpu` runs it; `make test` leaves it out."""
