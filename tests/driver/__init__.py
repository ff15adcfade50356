"""The interceptor on NVIDIA's own user-space libraries, without a card. `make -C tests driver` runs it."""
