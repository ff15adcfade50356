/* Virtual memory management: address ranges, and mappings of physical memory into them. All under the lock of physical.h. */
#include <stdlib.h>
#include <sys/mman.h>

#include "heap.h"
#include "vmm.h"

struct range {
    uintptr_t base;
    size_t size;
    struct range *next;
};

struct mapping {
    uintptr_t base;
    size_t size, offset; /* offset: in the physical memory */
    struct sim_physical *physical;
    int access;
    struct mapping *next;
};

static struct range *ranges;
static struct mapping *mappings;

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
    sim_physical_lock();
    *range = (struct range){base, size, ranges};
    ranges = range;
    sim_physical_unlock();
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
    sim_physical_lock();
    struct range **at = &ranges;
    while (*at != NULL && ((*at)->base != base || (*at)->size != size))
        at = &(*at)->next;
    struct range *range = *at;
    if (range != NULL && mapped_within(base, size))
        range = NULL;
    if (range != NULL)
        *at = range->next;
    sim_physical_unlock();
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
static CUresult map(uintptr_t base, size_t size, size_t offset, struct sim_physical *physical)
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
    *mapping = (struct mapping){base, size, offset, physical, 0, mappings};
    mappings = mapping;
    physical->references++;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    SIM_NEED_INIT();
    sim_physical_lock();
    CUresult result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(base, size, offset, sim_physical_of(handle));
    sim_physical_unlock();
    return result;
}

/* Puts reserved, empty address space where the mapping was. */
static void unmap(struct mapping *mapping)
{
    sim_heap_forget(mapping->base);
    mmap((void *)mapping->base, mapping->size, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    sim_physical_drop(mapping->physical);
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
    sim_physical_lock();
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
    sim_physical_unlock();
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
    sim_physical_lock();
    bool whole = size > 0 && covered(base, size) == size;
    for (struct mapping *mapping = mappings; whole && mapping != NULL; mapping = mapping->next)
        if (mapping->base >= base && mapping->base < base + size)
            mapping->access = access[count - 1].flags;
    sim_physical_unlock();
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
    sim_physical_lock();
    const struct mapping *mapping = mapping_at(address);
    if (mapping != NULL)
        *flags = (unsigned long long)mapping->access;
    sim_physical_unlock();
    return mapping == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

struct sim_physical *sim_mapped_at(CUdeviceptr address, size_t *offset)
{
    const struct mapping *mapping = mapping_at(address);
    if (mapping == NULL)
        return NULL;
    *offset = mapping->offset + (address - mapping->base);
    return mapping->physical;
}

/* A released handle comes back as a new one. */
SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    SIM_NEED_INIT();
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_lock();
    const struct mapping *mapping = mapping_at((uintptr_t)address);
    if (mapping != NULL) {
        struct sim_physical *physical = mapping->physical;
        *out = sim_physical_handle(physical);
    }
    sim_physical_unlock();
    return mapping == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
