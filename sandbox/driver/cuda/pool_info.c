/* What pools answer about themselves, which pool a device uses, and who may access it. */
#include "handle.h"
#include "managed.h"
#include "pool.h"

#define NEED_POOL(handle, name)                                \
    SIM_NEED_INIT();                                           \
    struct sim_pool *name = sim_handle_get(handle, SIM_POOL);  \
    if ((name) == NULL)                                        \
        return CUDA_ERROR_INVALID_VALUE

static bool reuse_attribute(int attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

/* Attributes of 64 bits; NULL for others. */
static uint64_t *wide_attribute(struct sim_pool *pool, int attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        return &pool->max_size;
    default:
        return NULL;
    }
}

static CUresult small_attribute(const struct sim_pool *pool, int attribute, int *value)
{
    if (reuse_attribute(attribute))
        *value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    else if (attribute == CU_MEMPOOL_ATTR_ALLOCATION_TYPE)
        *value = CU_MEM_ALLOCATION_TYPE_PINNED;
    else if (attribute == CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES)
        *value = pool->handle_types;
    else if (attribute == CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED)
        *value = 0;
    else if (attribute == CU_MEMPOOL_ATTR_LOCATION_ID)
        *value = pool->host.type != 0 ? pool->host.id : pool->device->ordinal;
    else if (attribute == CU_MEMPOOL_ATTR_LOCATION_TYPE)
        *value = pool->host.type != 0 ? pool->host.type : pool->place.type != 0 ? pool->place.type : CU_MEM_LOCATION_TYPE_DEVICE;
    else if (attribute == CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID && pool->place.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        *value = pool->place.id >> 8 & 0xff;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value)
{
    NEED_POOL(handle, pool);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    const uint64_t *wide = wide_attribute(pool, attribute);
    CUresult result = wide == NULL ? small_attribute(pool, attribute, value) : CUDA_SUCCESS;
    if (wide != NULL)
        *(uint64_t *)value = *wide;
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* High marks can only be reset; sizes are as they are. */
static CUresult set_wide(struct sim_pool *pool, int attribute, uint64_t value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        pool->reserved_high = value == 0 ? pool->reserved : pool->reserved_high;
        return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        pool->used_high = value == 0 ? pool->used : pool->used_high;
        return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value)
{
    CUresult result = CUDA_SUCCESS;
    NEED_POOL(handle, pool);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    if (reuse_attribute(attribute))
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value;
    else
        result = wide_attribute(pool, attribute) == NULL ? CUDA_ERROR_INVALID_VALUE
                                                         : set_wide(pool, attribute, *(const uint64_t *)value);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* ---- which pool a device uses ---- */

static CUresult give_pool(CUmemoryPool *out, const struct sim_pool *pool)
{
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device == NULL ? CUDA_ERROR_INVALID_DEVICE : give_pool(out, sim_pool_default(device));
}

struct sim_pool *sim_pool_current(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct sim_pool *pool = device->current_pool;
    pthread_mutex_unlock(&device->lock);
    return pool != NULL ? pool : sim_pool_default(device);
}

SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device == NULL ? CUDA_ERROR_INVALID_DEVICE : give_pool(out, sim_pool_current(device));
}

SIM_API CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
    NEED_POOL(handle, pool);
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (pool->device != device || pool->imported || pool->host.type != CU_MEM_LOCATION_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&device->lock);
    device->current_pool = pool;
    pthread_mutex_unlock(&device->lock);
    return CUDA_SUCCESS;
}

/* What is set for a part of a device is set for all of it. */
static CUdevice ordinal_at(const CUmemLocation *location)
{
    const struct sim_device *device = sim_device_at(*location);
    return device == NULL ? -1 : device->ordinal;
}

/* The newer entries name a place and a type of memory: pinned, of a device or of the host. */
static CUresult check_place(const CUmemLocation *location, int type)
{
    SIM_NEED_INIT();
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_location_is_device(*location) || sim_location_is_host(*location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    CUresult result = check_place(location, type);
    if (result != CUDA_SUCCESS || sim_location_is_device(*location))
        return result != CUDA_SUCCESS ? result : cuDeviceGetDefaultMemPool(out, ordinal_at(location));
    return out == NULL ? CUDA_ERROR_INVALID_VALUE : give_pool(out, sim_pool_of_host());
}

static _Atomic(struct sim_pool *) host_pool; /* set by cuMemSetMemPool; NULL: the default one */

SIM_API CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, int type)
{
    CUresult result = check_place(location, type);
    if (result != CUDA_SUCCESS || sim_location_is_device(*location))
        return result != CUDA_SUCCESS ? result : cuDeviceGetMemPool(out, ordinal_at(location));
    const struct sim_pool *pool = host_pool;
    return out == NULL ? CUDA_ERROR_INVALID_VALUE : give_pool(out, pool != NULL ? pool : sim_pool_of_host());
}

SIM_API CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool handle)
{
    CUresult result = check_place(location, type);
    if (result != CUDA_SUCCESS || sim_location_is_device(*location))
        return result != CUDA_SUCCESS ? result : cuDeviceSetMemPool(ordinal_at(location), handle);
    struct sim_pool *pool = sim_handle_get(handle, SIM_POOL);
    if (pool == NULL || pool->host.type == CU_MEM_LOCATION_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    host_pool = pool;
    return CUDA_SUCCESS;
}

/* ---- access ---- */

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
    NEED_POOL(handle, pool);
    if (access == NULL && count > 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || sim_device(access[i].location.id) == NULL)
            return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location)
{
    enum { NONE = 0, READ_WRITE = 3 };
    NEED_POOL(handle, pool);
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->device->ordinal;
    *flags = own ? READ_WRITE : NONE;
    return CUDA_SUCCESS;
}

/* ---- the pool of graphs ---- */

static uint64_t *graph_attribute(struct sim_pool *pool, int attribute)
{
    uint64_t *const values[] = {&pool->used, &pool->used_high, &pool->reserved, &pool->reserved_high};
    return attribute < 0 || attribute > 3 ? NULL : values[attribute];
}

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, int attribute, void *value)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    struct sim_pool *pool = device == NULL ? NULL : sim_pool_of_graphs(device);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (pool == NULL || value == NULL || graph_attribute(pool, attribute) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    *(uint64_t *)value = *graph_attribute(pool, attribute);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

/* Only the high marks can be set, to zero. */
SIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, int attribute, void *value)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    struct sim_pool *pool = device == NULL ? NULL : sim_pool_of_graphs(device);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (pool == NULL || value == NULL || (attribute != 1 && attribute != 3) || *(const uint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pool->lock);
    *graph_attribute(pool, attribute) = *graph_attribute(pool, attribute - 1);
    pthread_mutex_unlock(&pool->lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (sim_pool_of_graphs(device) != NULL)
        sim_pool_trim(device->graph_pool, 0);
    return CUDA_SUCCESS;
}
