/*
 * Memory pools. A pool reserves device memory in steps of 32 MiB and gives back what it does not use when somebody waits for the
 * device and it holds more than its release threshold.
 */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "heap.h"

#define SIM_POOL_STEP ((uint64_t)32 << 20)

struct sim_pool {
    CUmemoryPool handle;
    struct sim_device *device;
    struct sim_heap heap; /* places; charged through the pool */
    pthread_mutex_t lock; /* guards the members below */
    uint64_t reserved, reserved_high, used, used_high, threshold, max_size;
    int reuse[3];
    int handle_types;
    CUmemLocation place; /* of a pool made for a device or a part of one; type NONE: the device */
    CUmemLocation host; /* of a pool of host memory, which costs no device anything; type NONE: the device's */
    bool is_default, destroyed, imported; /* imported: another process's, to name allocations by */
    uint64_t live;
    struct sim_pool *next; /* of the same device; under the device's lock */
};

/* The default pool and the one of graphs, made when first asked for; NULL when the host is out of memory. */
struct sim_pool *sim_pool_default(struct sim_device *device);
struct sim_pool *sim_pool_of_graphs(struct sim_device *device);

/* The default pool of host memory. */
struct sim_pool *sim_pool_of_host(void);
/* A name for another process's pool. */
struct sim_pool *sim_pool_imported(struct sim_device *device);

/* The pool that cuMemAllocAsync takes from. */
struct sim_pool *sim_pool_current(struct sim_device *device);

/* What an allocation of a size takes of its pool. */
uint64_t sim_pool_share(size_t size);
/* Takes bytes of a pool, which grows if need be, for memory whose place is known elsewhere; and gives them back. */
bool sim_pool_hold(struct sim_pool *pool, uint64_t bytes);
void sim_pool_unhold(struct sim_pool *pool, uint64_t bytes);

struct sim_allocation *sim_pool_take(struct sim_pool *pool, const struct sim_request *request);
/* Gives an allocation back to its pool. */
void sim_pool_give(struct sim_allocation *allocation);
void sim_pool_trim(struct sim_pool *pool, uint64_t keep);
/* After somebody waited for the device: pools give back what is above their thresholds. */
void sim_pools_settle(struct sim_device *device);

#endif
