/* The devices that this process sees, and the process's own state. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../include/simcuda.h"
#include "../machine/card.h"

struct sim_context;
struct sim_heap;
struct sim_pool;
struct sim_engine;

/* A device's heaps: its own memory, the same below 4 GiB, managed memory, the host's. */
enum sim_heap_name { SIM_HEAP_DEVICE, SIM_HEAP_LOW, SIM_HEAP_MANAGED, SIM_HEAP_HOST, SIM_HEAPS };

/* A device ordinal of this process: a card or a MIG instance. Lives as long as the process. */
struct sim_device {
    CUdevice ordinal;
    const struct sim_card *card;
    const struct sim_mig *mig; /* NULL: the whole card */
    struct sim_unit *unit;
    uint64_t total;            /* bytes the driver can hand out */
    int slot;                  /* ours on the unit; SIM_NO_SLOT until the first context */
    pthread_mutex_t lock;         /* guards slot, heap, pools and engine */
    pthread_mutex_t primary_lock; /* guards the primary context; taken before lock */
    struct sim_context *primary;
    unsigned int primary_flags;
    struct sim_heap *heaps[SIM_HEAPS];
    struct sim_pool *pools;         /* all of them */
    struct sim_pool *ended_pools;   /* kept: see pool.c */
    struct sim_pool *default_pool;
    struct sim_pool *current_pool;  /* of cuMemAllocAsync; NULL: the default one */
    struct sim_pool *graph_pool;
    struct sim_engine *engine;
};

/* Has cuInit succeeded here? Reads one flag. */
bool sim_ready(void);
/* NOT_INITIALIZED until cuInit has succeeded; else what is given. */
#define SIM_NEED_INIT()                       \
    do {                                      \
        if (!sim_ready())                     \
            return CUDA_ERROR_NOT_INITIALIZED; \
    } while (0)

static inline bool sim_location_is_device(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE || location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
}

static inline bool sim_location_is_host(CUmemLocation location)
{
    return location.type >= CU_MEM_LOCATION_TYPE_HOST && location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* The place of a unit among all of the machine's. */
int sim_unit_index(const struct sim_unit *unit);
/* The device of this process that a unit is; NULL: it is not seen here. */
struct sim_device *sim_device_of_unit(int unit);
/* NULL: no such ordinal. */
struct sim_device *sim_device(CUdevice ordinal);
/* The device of a location, which may be a part of one; NULL: it names none, or none there is. */
struct sim_device *sim_device_at(CUmemLocation location);
int sim_device_count(void);
const struct sim_scenario *sim_scenario(void);
/* The CUDA version the driver speaks, 13050 for 13.5; known before cuInit. */
int sim_driver_version(void);

/* Claims this process's slot on the device's unit; false when the unit has no slot left. */
bool sim_device_attach(struct sim_device *device);

/* Charges device memory. Managed memory that is there gives way to it; not so to the second. */
bool sim_device_charge_now(struct sim_device *device, uint64_t bytes);
bool sim_device_charge(struct sim_device *device, uint64_t bytes);
void sim_device_release(struct sim_device *device, uint64_t bytes);

#endif
