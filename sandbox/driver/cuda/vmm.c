/*
 * Virtual memory management: address ranges, physical memory, and mappings between them. Physical memory is a file without a
 * name, so that two mappings of it show the same bytes; it lives until it is released and unmapped everywhere.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "handle.h"
#include "heap.h"

struct physical {
    CUmemGenericAllocationHandle handle;
    struct sim_device *device; /* NULL: the host's */
    CUmemAllocationProp prop;
    size_t size;
    int fd;
    int references; /* handles given out, and mappings; under the lock */
    int handles;
};

struct range {
    uintptr_t base;
    size_t size;
    struct range *next;
};

struct mapping {
    uintptr_t base;
    size_t size;
    struct physical *physical;
    int access;
    struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static struct mapping *mappings;

/* ---- physical memory ---- */

/* Under the lock. */
static void drop(struct physical *physical)
{
    if (--physical->references > 0)
        return;
    close(physical->fd);
    if (physical->device != NULL)
        sim_device_release(physical->device, physical->size);
    free(physical);
}

static bool on_host(const CUmemAllocationProp *prop)
{
    return prop->location.type >= CU_MEM_LOCATION_TYPE_HOST && prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (on_host(prop))
        return CUDA_SUCCESS;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(prop->location.id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return prop->requested_handle_types == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static struct physical *new_physical(size_t size, const CUmemAllocationProp *prop)
{
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return NULL;
    *physical = (struct physical){.prop = *prop, .size = size, .references = 1, .handles = 1};
    physical->device = on_host(prop) ? NULL : sim_device(prop->location.id);
    physical->fd = memfd_create("simgpu", MFD_CLOEXEC);
    physical->handle = (CUmemGenericAllocationHandle)(uintptr_t)sim_handle_new(SIM_ALLOCATION, physical);
    if (physical->fd >= 0 && ftruncate(physical->fd, (off_t)size) == 0 && physical->handle != 0)
        return physical;
    sim_handle_end((const void *)(uintptr_t)physical->handle, SIM_ALLOCATION);
    close(physical->fd);
    free(physical);
    return NULL;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    SIM_NEED_INIT();
    CUresult result = check_prop(prop);
    if (out == NULL || size == 0 || size % SIM_BLOCK != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_device *device = on_host(prop) ? NULL : sim_device(prop->location.id);
    if (device != NULL && (!sim_device_attach(device) || !sim_device_charge(device, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *physical = new_physical(size, prop);
    if (physical == NULL) {
        if (device != NULL)
            sim_device_release(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = physical->handle;
    return CUDA_SUCCESS;
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    return sim_handle_get((const void *)(uintptr_t)handle, SIM_ALLOCATION);
}

/* Every handle given out must be released; the last release ends the handle, not the mappings. */
SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_NEED_INIT();
    pthread_mutex_lock(&lock);
    struct physical *physical = physical_of(handle);
    if (physical != NULL && --physical->handles == 0)
        sim_handle_end((const void *)(uintptr_t)handle, SIM_ALLOCATION);
    if (physical != NULL)
        drop(physical);
    pthread_mutex_unlock(&lock);
    return physical == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option)
{
    SIM_NEED_INIT();
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result == CUDA_SUCCESS)
        *granularity = SIM_BLOCK;
    return result;
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    SIM_NEED_INIT();
    pthread_mutex_lock(&lock);
    const struct physical *physical = physical_of(handle);
    if (physical != NULL && prop != NULL)
        *prop = physical->prop;
    pthread_mutex_unlock(&lock);
    return physical == NULL || prop == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- address ranges ---- */

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
    (void)wish; /* a hint */
    SIM_NEED_INIT();
    if (out == NULL || size == 0 || size % SIM_BLOCK != 0 || (alignment & (alignment - 1)) != 0 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct range *range = calloc(1, sizeof *range);
    uintptr_t base = range == NULL ? 0 : sim_space_take(size, alignment < SIM_BLOCK ? SIM_BLOCK : alignment, false);
    if (base == 0) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = base;
    pthread_mutex_lock(&lock);
    *range = (struct range){base, size, ranges};
    ranges = range;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Under the lock: does any mapping lie in the range? */
static bool mapped_within(uintptr_t base, size_t size)
{
    for (const struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
        if (mapping->base < base + size && base < mapping->base + mapping->size)
            return true;
    return false;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
    SIM_NEED_INIT();
    pthread_mutex_lock(&lock);
    struct range **at = &ranges;
    while (*at != NULL && ((*at)->base != base || (*at)->size != size))
        at = &(*at)->next;
    struct range *range = *at;
    if (range != NULL && mapped_within(base, size))
        range = NULL;
    if (range != NULL)
        *at = range->next;
    pthread_mutex_unlock(&lock);
    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_space_give(base, size);
    free(range);
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

static bool reserved(uintptr_t base, size_t size)
{
    for (const struct range *range = ranges; range != NULL; range = range->next)
        if (base >= range->base && base - range->base <= range->size && size <= range->size - (base - range->base))
            return true;
    return false;
}

/* Under the lock. */
static CUresult map(uintptr_t base, size_t size, size_t offset, struct physical *physical)
{
    if (physical == NULL || base % SIM_BLOCK != 0 || size == 0 || size % SIM_BLOCK != 0 || offset % SIM_BLOCK != 0 ||
        offset > physical->size || size > physical->size - offset || !reserved(base, size) || mapped_within(base, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = mmap((void *)base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd,
                        (off_t)offset);
    if (memory == MAP_FAILED || !sim_heap_note(base, size, SIM_MEMORY_MAPPED, physical->device)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *mapping = (struct mapping){base, size, physical, 0, mappings};
    mappings = mapping;
    physical->references++;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    SIM_NEED_INIT();
    pthread_mutex_lock(&lock);
    CUresult result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(base, size, offset, physical_of(handle));
    pthread_mutex_unlock(&lock);
    return result;
}

/* Puts reserved, empty address space where the mapping was. */
static void unmap(struct mapping *mapping)
{
    sim_heap_forget(mapping->base);
    mmap((void *)mapping->base, mapping->size, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    drop(mapping->physical);
    free(mapping);
}

/* Whole mappings only: bytes covered by those that lie in the range. */
static size_t covered(uintptr_t base, size_t size)
{
    size_t sum = 0;
    for (const struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
        if (mapping->base >= base && mapping->base + mapping->size <= base + size)
            sum += mapping->size;
    return sum;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
    SIM_NEED_INIT();
    pthread_mutex_lock(&lock);
    bool whole = size > 0 && covered(base, size) == size;
    for (struct mapping **at = &mappings; whole && *at != NULL;) {
        struct mapping *mapping = *at;
        if (mapping->base < base || mapping->base >= base + size) {
            at = &mapping->next;
            continue;
        }
        *at = mapping->next;
        unmap(mapping);
    }
    pthread_mutex_unlock(&lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t count)
{
    SIM_NEED_INIT();
    if (access == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device(access[i].location.id) == NULL)
            return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    bool whole = size > 0 && covered(base, size) == size;
    for (struct mapping *mapping = mappings; whole && mapping != NULL; mapping = mapping->next)
        if (mapping->base >= base && mapping->base < base + size)
            mapping->access = access[count - 1].flags;
    pthread_mutex_unlock(&lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock: the mapping that an address lies in. */
static struct mapping *mapping_at(uintptr_t address)
{
    for (struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
        if (address - mapping->base < mapping->size)
            return mapping;
    return NULL;
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    SIM_NEED_INIT();
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const struct mapping *mapping = mapping_at(address);
    if (mapping != NULL)
        *flags = (unsigned long long)mapping->access;
    pthread_mutex_unlock(&lock);
    return mapping == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* A released handle comes back as a new one. */
SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    SIM_NEED_INIT();
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const struct mapping *mapping = mapping_at((uintptr_t)address);
    if (mapping != NULL) {
        struct physical *physical = mapping->physical;
        if (physical->handles++ == 0)
            physical->handle = (CUmemGenericAllocationHandle)(uintptr_t)sim_handle_new(SIM_ALLOCATION, physical);
        physical->references++;
        *out = physical->handle;
    }
    pthread_mutex_unlock(&lock);
    return mapping == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
