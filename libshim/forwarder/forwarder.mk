# The forwarders: one source, two lists of names. What a list has beside the hook table is forwarded to the driver, which
# is needed under a name of its own and looked for first in the interceptor's directory of a container.
FORWARDER := $(BUILD)/forwarder
DIRECTORY := /usr/local/aliquot
forwarders := $(FORWARDER)/libcuda.so.1 $(FORWARDER)/libnvidia-ml.so.1
hook_rows := $(sort $(wildcard src/hooks/*.def))

forwarders: $(forwarders)

# Statuses of the driver and of NVML: not initialized; function not found; shared object or library missing.
$(FORWARDER)/libcuda.so.1: NAMES := -DAQ_UNINITIALIZED=3 -DAQ_ABSENT=500 -DAQ_REFUSED=303 -DAQ_HOOKS='"hooks/cuda.def"'
$(FORWARDER)/libnvidia-ml.so.1: NAMES := -DAQ_UNINITIALIZED=1 -DAQ_ABSENT=13 -DAQ_REFUSED=12 -DAQ_HOOKS='"hooks/nvml.def"'
$(FORWARDER)/libcuda.so.1: $(FORWARDER)/cuda.def $(FORWARDER)/libcuda-real.so.1
$(FORWARDER)/libnvidia-ml.so.1: $(FORWARDER)/nvml.def $(FORWARDER)/libnvidia-ml-real.so.1

$(forwarders): forwarder/forward.c forwarder/exports.map $(hook_rows) Makefile forwarder/forwarder.mk
	$(CC) $(CFLAGS) $(NAMES) -DAQ_OTHERS='"$(abspath $(filter $(FORWARDER)/%.def,$^))"' -DAQ_SONAME='"$(@F)"' \
	  -DAQ_DRIVER='"$(notdir $(filter %-real.so.1,$^))"' -c -o $@.o $<
	$(CC) $(LDFLAGS) -Wl,-z,now -Wl,-soname,$(@F) -Wl,--version-script=forwarder/exports.map -Wl,--hash-style=both -Wl,-z,nodelete \
	  -Wl,--disable-new-dtags -Wl,-rpath,$(DIRECTORY) -o $@.new $@.o \
	  -Wl,--no-as-needed $(filter %-real.so.1,$^) -Wl,--as-needed $(LDLIBS)
	mv -f $@.new $@

# Names that are hooked have their stubs from the hook table.
$(FORWARDER)/%.def: forwarder/%.def $(hook_rows) | $(FORWARDER)
	awk -F'[(,)]' 'FILENAME != list && /^AQ_HOOK\(/ { hooked[$$2] } FILENAME == list && !($$2 in hooked)' \
	  list=$< $(hook_rows) $< > $@.new
	mv -f $@.new $@

# Stands for the driver while we are linked: only its name matters.
$(FORWARDER)/%-real.so.1: | $(FORWARDER)
	$(CC) -shared -nostdlib -Wl,-soname,$(@F) -x c -o $@ /dev/null

$(FORWARDER):
	mkdir -p $@

.SECONDARY: $(FORWARDER)/cuda.def $(FORWARDER)/nvml.def
.PHONY: forwarders
