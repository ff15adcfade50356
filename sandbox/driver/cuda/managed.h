/*
 * Where managed memory is: on the host at first, and block by block of 2 MiB on the devices that it was prefetched to or that
 * a kernel touched it on. What is on a device is charged to it; a device that is full puts the memory that was used the
 * longest ago back on the host. A kernel touches the allocations whose addresses are among its parameters.
 */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "heap.h"

/* One allocation's blocks. */
struct sim_managed;

/* What is known of one block. */
struct sim_managed_block {
    uint64_t on; /* the devices that have it, by ordinal; none: the host */
    uint64_t accessed_by; /* the devices that map it where it is */
    bool accessed_by_host, read_mostly;
    CUmemLocation preferred, prefetched; /* type NONE: nowhere */
};

/* Begins and ends an allocation's life: on the host, with no advice. NULL when the host is out of memory. */
struct sim_managed *sim_managed_new(uintptr_t base, size_t size);
void sim_managed_free(struct sim_managed *managed);

/* Is there any managed memory? Reads one word. */
bool sim_managed_any(void);
/* Does a range lie in one managed allocation? Another thread may be freeing it, so it is asked again by whatever uses it. */
bool sim_managed_has(uintptr_t address, size_t size);
/* Calls back for every block of a range, under the lock. False: it does not lie in one managed allocation. */
bool sim_managed_each(uintptr_t address, size_t size, void (*visit)(struct sim_managed_block *block, void *data), void *data);

/* Bytes over the bus. */
struct sim_traffic {
    uint64_t in, out; /* to the device, and off it to make room */
};

/* A device runs something that uses the memory at an address: moves its blocks there, as far as advice and room allow. */
struct sim_traffic sim_managed_touch(struct sim_device *device, uintptr_t address);
/* Moves what there is of a range to a location. */
void sim_managed_move(uintptr_t address, size_t size, CUmemLocation location);
/* Ends all copies of a block that is mostly read but one, at its preferred location or on the host. */
void sim_managed_collapse(uintptr_t address, size_t size);
/* Makes room on a device by putting managed memory on the host, of other processes and then of this one; false, and nothing done, when there is too little. */
bool sim_managed_evict(struct sim_device *device, uint64_t bytes);

#endif
