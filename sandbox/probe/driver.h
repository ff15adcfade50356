/*
 * The driver as the probe calls it: entries found by name and version, with the few types that the questions need. Our own
 * declarations; nothing here is shared with the simulated driver, whose mistakes the probe is to find.
 */
#ifndef PROBE_DRIVER_H
#define PROBE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t pointer;

/* Opens libcuda.so.1; exits with 2 when there is none. */
void driver_open(void);
/* An entry by its plain name and the CUDA version whose ABI is meant; exits the group when the driver has none. */
void *driver_entry(const char *name, int since);
/* cuGetProcAddress_v2, with *symbol set to the ABI's name of what was found, "" for nothing. */
int driver_look_up(const char *name, int version, uint64_t flags, int *status, const char **symbol);

/* ASK((types), since, "name")(arguments) */
#define ASK(signature, since, name) ((int(*) signature)(uintptr_t)driver_entry(name, since))

struct location {
    int type, id;
};

struct allocation_prop {
    int type, handle_types;
    struct location location;
    void *unused;
    uint64_t flags;
};

struct pool_props {
    int type, handle_types;
    struct location location;
    void *unused;
    size_t max_size;
    char reserved[56];
};

struct access {
    struct location location;
    int flags;
};

struct array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct requirements {
    size_t size, alignment;
    unsigned reserved[4];
};

/* ---- answers, one JSON object a line ---- */

void say(const char *probe, long long result);
void say_text(const char *probe, const char *result);

/* ---- what many groups begin with ---- */

/* cuInit and a current primary context on device 0; ends the group (and says so) when that fails. */
void need_context(void);
/* Free bytes of the device. */
long long free_bytes(void);

/* ---- groups of questions, each asked in a process of its own ---- */

void probe_start(void);
void probe_lookup(void);
void probe_device(void);
void probe_context(void);
void probe_memory(void);
void probe_pool(void);
void probe_mapping(void);
void probe_array(void);
void probe_module(void);
void probe_stream(void);
void probe_capture(void);
void probe_residency(void);
void probe_share(void);

#endif
