# Release builds for any glibc since 2.17: `make release` makes build/release/<arch>/libaliquot.so, and tells the digests of all
# that tenants load. They depend on the sources and the compiler alone (SECURITY.md says how to compare them).
# ziglang (pip install ziglang) brings the libraries of every glibc and compiles for both processors; any compiler that
# takes -target will do: make release ZIG='clang --sysroot=…'.
ZIG ?= python3 -m ziglang cc
GLIBC ?= 2.17
ARCHS ?= x86_64 aarch64
RELEASED := libaliquot.so forwarder/libcuda.so.1 forwarder/libnvidia-ml.so.1

release: $(ARCHS:%=release-%)
	@cd build/release && sha256sum $(foreach arch,$(sort $(ARCHS)),$(RELEASED:%=$(arch)/%)) | tee SHA256SUMS

release-%:
	$(MAKE) BUILD=build/release/$* CC='$(ZIG) -target $*-linux-gnu.$(GLIBC)' CFLAGS='-O2 -ffile-prefix-map=$(CURDIR)=.' LDFLAGS='-s'

.PHONY: release
