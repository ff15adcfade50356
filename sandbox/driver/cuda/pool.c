/* How pools grow, shrink and end. */
#include "pool.h"

#include <stdlib.h>

#include "handle.h"
#include "managed.h"

static uint64_t steps(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

uint64_t sim_pool_share(size_t size)
{
    enum { UNIT = 512 };
    return steps(size, UNIT);
}

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Under the pool's lock: grows to hold `need` bytes, in whole steps or, when the card is short, in blocks. */
static bool reserve(struct sim_pool *pool, uint64_t need)
{
    const uint64_t units[] = {SIM_POOL_STEP, SIM_BLOCK};
    if (need <= pool->reserved)
        return true;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint64_t target = steps(need, units[i]);
        if (pool->max_size != 0 && target > steps(pool->max_size, SIM_BLOCK))
            continue;
        if (pool->host.type == 0 && !sim_device_charge(pool->device, target - pool->reserved))
            continue;
        pool->reserved = target;
        pool->reserved_high = higher(pool->reserved_high, target);
        return true;
    }
    return false;
}

struct sim_allocation *sim_pool_take(struct sim_pool *pool, const struct sim_request *request)
{
    struct sim_allocation *allocation = NULL;
    uint64_t bytes = sim_pool_share(request->size);
    pthread_mutex_lock(&pool->lock);
    if (bytes >= request->size && bytes <= SIZE_MAX - pool->used && reserve(pool, pool->used + bytes))
        allocation = sim_heap_take(&pool->heap, request);
    if (allocation != NULL) {
        pool->used += bytes;
        pool->used_high = higher(pool->used_high, pool->used);
        pool->live++;
    }
    pthread_mutex_unlock(&pool->lock);
    return allocation;
}

bool sim_pool_hold(struct sim_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    bool held = reserve(pool, pool->used + bytes);
    if (held) {
        pool->used += bytes;
        pool->used_high = higher(pool->used_high, pool->used);
    }
    pthread_mutex_unlock(&pool->lock);
    return held;
}

void sim_pool_unhold(struct sim_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->used -= bytes;
    pthread_mutex_unlock(&pool->lock);
}

static void trim(struct sim_pool *pool, uint64_t keep)
{
    if (keep >= pool->reserved)
        return; /* a threshold of all ones keeps everything */
    uint64_t target = higher(steps(pool->used, SIM_POOL_STEP), steps(keep, SIM_BLOCK));
    if (target >= pool->reserved)
        return;
    if (pool->host.type == 0)
        sim_device_release(pool->device, pool->reserved - target);
    pool->reserved = target;
}

void sim_pool_trim(struct sim_pool *pool, uint64_t keep)
{
    pthread_mutex_lock(&pool->lock);
    trim(pool, keep);
    pthread_mutex_unlock(&pool->lock);
}

void sim_pool_give(struct sim_allocation *allocation)
{
    struct sim_pool *pool = allocation->pool;
    uint64_t bytes = sim_pool_share(allocation->size);
    sim_heap_give(allocation);
    pthread_mutex_lock(&pool->lock);
    pool->used -= bytes;
    pool->live--;
    if (pool->destroyed)
        trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
}

void sim_pools_settle(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    for (struct sim_pool *pool = device->pools; pool != NULL; pool = pool->next)
        sim_pool_trim(pool, pool->threshold);
    pthread_mutex_unlock(&device->lock);
}

/* ---- making ---- */

/* Pools are never freed: their numbers stay readable, and allocations may outlive their pool's handle. */
static struct sim_pool *new_pool(struct sim_device *device, uint64_t max_size)
{
    struct sim_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    *pool = (struct sim_pool){.device = device, .max_size = max_size, .reuse = {1, 1, 1}, .heap = {.device = device}};
    pthread_mutex_init(&pool->lock, NULL);
    pool->handle = sim_handle_new(SIM_POOL, pool);
    pool->next = device->pools;
    device->pools = pool;
    return pool;
}

static struct sim_pool *pool_at(struct sim_device *device, struct sim_pool **place)
{
    pthread_mutex_lock(&device->lock);
    if (*place == NULL)
        *place = new_pool(device, 0);
    if (*place != NULL)
        (*place)->is_default = true;
    struct sim_pool *pool = *place;
    pthread_mutex_unlock(&device->lock);
    return pool;
}

struct sim_pool *sim_pool_default(struct sim_device *device)
{
    return pool_at(device, &device->default_pool);
}

struct sim_pool *sim_pool_of_graphs(struct sim_device *device)
{
    struct sim_pool *pool = pool_at(device, &device->graph_pool);
    if (pool != NULL)
        pool->threshold = UINT64_MAX; /* keeps all until it is trimmed */
    return pool;
}

struct sim_pool *sim_pool_of_host(void)
{
    static struct sim_pool *pool;
    struct sim_pool *found = pool_at(sim_device(0), &pool);
    if (found != NULL)
        found->host.type = CU_MEM_LOCATION_TYPE_HOST;
    return found;
}

struct sim_pool *sim_pool_imported(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct sim_pool *pool = new_pool(device, 0);
    if (pool != NULL)
        pool->imported = true;
    pthread_mutex_unlock(&device->lock);
    return pool;
}

/* ---- entries: making and ending ---- */

enum { HANDLE_TYPES = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC };

SIM_API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    SIM_NEED_INIT();
    if (out == NULL || props == NULL || props->alloc_type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    bool on_host = sim_location_is_host(props->location);
    if (!on_host && !sim_location_is_device(props->location))
        return CUDA_ERROR_INVALID_VALUE;
    if ((props->handle_types & ~HANDLE_TYPES) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_device *device = on_host ? sim_device(0) : sim_device_at(props->location);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_device_attach(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&device->lock);
    struct sim_pool *pool = new_pool(device, props->max_size);
    if (pool != NULL)
        pool->handle_types = props->handle_types;
    if (pool != NULL && on_host)
        pool->host = props->location;
    if (pool != NULL && !on_host)
        pool->place = props->location;
    pthread_mutex_unlock(&device->lock);
    if (pool == NULL || pool->handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

static void unlink_pool(struct sim_pool *pool)
{
    struct sim_device *device = pool->device;
    pthread_mutex_lock(&device->lock);
    if (device->current_pool == pool)
        device->current_pool = NULL;
    struct sim_pool **at = &device->pools;
    while (*at != NULL && *at != pool)
        at = &(*at)->next;
    if (*at == pool) {
        *at = pool->next;
        pool->next = device->ended_pools;
        device->ended_pools = pool;
    }
    pthread_mutex_unlock(&device->lock);
}

/* Memory in use stays in use; the rest goes back at once. */
SIM_API CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    SIM_NEED_INIT();
    struct sim_pool *pool = sim_handle_get(handle, SIM_POOL);
    if (pool == NULL || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_handle_end(handle, SIM_POOL) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    unlink_pool(pool);
    pthread_mutex_lock(&pool->lock);
    pool->destroyed = true;
    trim(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    SIM_NEED_INIT();
    struct sim_pool *pool = sim_handle_get(handle, SIM_POOL);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_trim(pool, keep);
    return CUDA_SUCCESS;
}
