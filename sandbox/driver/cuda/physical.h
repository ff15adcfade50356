/*
 * Physical memory: what cuMemCreate makes and other processes import. It is a file without a name, so that two mappings of it
 * show the same bytes, in this process and in others; behind its bytes the file says what memory it is. It lives until it is
 * released and unmapped everywhere, and every file that was given out for it is closed. One lock of this process guards all of it.
 */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "device.h"

struct sim_multicast;

struct sim_physical {
    CUmemGenericAllocationHandle handle;
    struct sim_device *device; /* NULL: the host's */
    CUmemAllocationProp prop;
    size_t size;
    int fd;
    int references; /* handles given out, mappings, bindings */
    int handles;
    uint64_t share; /* its name among the processes that share it; 0: nobody else has it */
    bool exported;  /* files were given out for it */
    struct sim_physical *next; /* of those that only such a file keeps */
    struct sim_multicast *multicast; /* of a multicast object, which has no memory of its own */
};

/* What a file of memory says of itself, behind its bytes. */
struct sim_memory_label {
    char magic[16];
    int unit; /* index of the unit whose memory it is, -1: the host's */
    uint64_t share;
    size_t size;
    CUmemAllocationProp prop;
};

void sim_physical_lock(void);
void sim_physical_unlock(void);

/* Frees what was kept only by files that are closed now. */
void sim_physical_collect(void);

/* The rest under the lock. */

/* NULL for no handle. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
/* One more handle to it; 0 when there are too many. */
CUmemGenericAllocationHandle sim_physical_handle(struct sim_physical *physical);
/* Gives up one reference. */
void sim_physical_drop(struct sim_physical *physical);
/* A file for others, -1 when there are too many. As long as it is open anywhere the memory lives. */
int sim_physical_file(struct sim_physical *physical);
/* Takes a file of memory (it is not closed): NULL when it is none, or its device is not seen here. Has one reference. */
struct sim_physical *sim_physical_import(int fd);
/* Puts the label on its file and makes it shareable; false when too much memory is shared. */
bool sim_physical_share(struct sim_physical *physical);
/* New physical memory that costs nothing, with one reference and one handle; NULL when the host is out of memory. */
struct sim_physical *sim_physical_new(size_t size, const CUmemAllocationProp *prop, struct sim_device *device);

#endif
