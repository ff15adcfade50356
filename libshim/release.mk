# Release builds for any glibc since 2.17: `make release` makes build/release/<arch>/libaliquot.so.
# ziglang (pip install ziglang) brings the libraries of every glibc and compiles for both processors; any compiler that
# takes -target will do: make release ZIG='clang --sysroot=…'.
ZIG ?= python3 -m ziglang cc
GLIBC ?= 2.17
ARCHS ?= x86_64 aarch64

release: $(ARCHS:%=release-%)

release-%:
	$(MAKE) BUILD=build/release/$* CC='$(ZIG) -target $*-linux-gnu.$(GLIBC)' CFLAGS='-O2' LDFLAGS='-s'

.PHONY: release
