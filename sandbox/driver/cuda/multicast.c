/* Multicast objects. They have no memory of their own: what is bound to them stays in use until it is unbound. */
#include "multicast.h"

#include <stdlib.h>

#include "heap.h"
#include "vmm.h"

struct properties {
    unsigned int devices;
    size_t size;
    unsigned long long handle_types, flags;
};

/* Memory of one device at one place of an object. */
struct binding {
    struct sim_device *device;
    size_t offset, size;
    struct sim_physical *physical;
    struct binding *next;
};

struct sim_multicast {
    unsigned int devices, added;
    uint64_t members; /* devices added, by ordinal */
    struct binding *bindings;
};

void sim_multicast_end(struct sim_multicast *multicast)
{
    while (multicast->bindings != NULL) {
        struct binding *binding = multicast->bindings;
        multicast->bindings = binding->next;
        sim_physical_drop(binding->physical);
        free(binding);
    }
    free(multicast);
}

static bool sound(const struct properties *prop)
{
    return prop != NULL && prop->devices > 0 && prop->devices <= (unsigned int)sim_device_count() && prop->flags == 0;
}

SIM_API CUresult cuMulticastGetGranularity(size_t *out, const struct properties *prop, int option)
{
    SIM_NEED_INIT();
    if (out == NULL || !sound(prop) || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *out = SIM_BLOCK;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const struct properties *prop)
{
    SIM_NEED_INIT();
    if (out == NULL || !sound(prop) || prop->size == 0 || prop->size % SIM_BLOCK != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemAllocationProp plain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requested_handle_types = (int)prop->handle_types};
    struct sim_multicast *multicast = calloc(1, sizeof *multicast);
    struct sim_physical *physical = multicast == NULL ? NULL : sim_physical_new(prop->size, &plain, NULL);
    if (physical == NULL) {
        free(multicast);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    multicast->devices = prop->devices;
    physical->multicast = multicast;
    *out = physical->handle;
    return CUDA_SUCCESS;
}

static struct sim_multicast *multicast_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = sim_physical_of(handle);
    return physical == NULL ? NULL : physical->multicast;
}

/* Under the lock. */
static CUresult add_device(struct sim_multicast *multicast, const struct sim_device *device)
{
    if (multicast == NULL || multicast->added == multicast->devices)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bit = (uint64_t)1 << (device->ordinal & 63);
    if ((multicast->members & bit) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    multicast->members |= bit;
    multicast->added++;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_physical_lock();
    CUresult result = add_device(multicast_of(handle), device);
    sim_physical_unlock();
    return result;
}

static bool fits(size_t offset, size_t size, const struct sim_physical *physical)
{
    return offset % SIM_BLOCK == 0 && size > 0 && size % SIM_BLOCK == 0 && offset <= physical->size &&
           size <= physical->size - offset;
}

/* Under the lock. All devices must have been added before. */
static CUresult bind(struct sim_physical *object, size_t offset, struct sim_physical *memory, size_t memory_offset, size_t size,
                     const struct sim_device *device)
{
    if (object == NULL || object->multicast == NULL || memory == NULL || memory->device == NULL ||
        !fits(offset, size, object) || !fits(memory_offset, size, memory) || (device != NULL && device != memory->device))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_multicast *multicast = object->multicast;
    if ((multicast->members >> (memory->device->ordinal & 63) & 1) == 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (multicast->added < multicast->devices)
        return CUDA_ERROR_NOT_PERMITTED;
    struct binding *binding = malloc(sizeof *binding);
    if (binding == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){memory->device, offset, size, memory, multicast->bindings};
    multicast->bindings = binding;
    memory->references++;
    return CUDA_SUCCESS;
}

static CUresult bind_memory(CUmemGenericAllocationHandle object, const struct sim_device *device, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size, unsigned long long flags)
{
    SIM_NEED_INIT();
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_lock();
    CUresult result = bind(sim_physical_of(object), offset, sim_physical_of(memory), memory_offset, size, device);
    sim_physical_unlock();
    return result;
}

SIM_API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
                                    size_t memory_offset, size_t size, unsigned long long flags)
{
    return bind_memory(object, NULL, offset, memory, memory_offset, size, flags);
}

SIM_API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                       CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                       unsigned long long flags)
{
    SIM_NEED_INIT();
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_memory(object, sim_device(device), offset, memory, memory_offset, size, flags);
}

static CUresult bind_address(CUmemGenericAllocationHandle object, const struct sim_device *device, size_t offset,
                             CUdeviceptr address, size_t size, unsigned long long flags)
{
    SIM_NEED_INIT();
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_lock();
    size_t memory_offset = 0;
    struct sim_physical *memory = sim_mapped_at(address, &memory_offset);
    CUresult result = bind(sim_physical_of(object), offset, memory, memory_offset, size, device);
    sim_physical_unlock();
    return result;
}

SIM_API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address, size_t size,
                                     unsigned long long flags)
{
    return bind_address(object, NULL, offset, address, size, flags);
}

SIM_API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr address,
                                        size_t size, unsigned long long flags)
{
    SIM_NEED_INIT();
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_address(object, sim_device(device), offset, address, size, flags);
}

/* Under the lock: whole bindings only. */
static CUresult unbind(struct sim_multicast *multicast, const struct sim_device *device, size_t offset, size_t size)
{
    if (multicast == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct binding **at = &multicast->bindings;
    while (*at != NULL && ((*at)->device != device || (*at)->offset != offset || (*at)->size != size))
        at = &(*at)->next;
    struct binding *binding = *at;
    if (binding == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *at = binding->next;
    sim_physical_drop(binding->physical);
    free(binding);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset, size_t size)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_physical_lock();
    CUresult result = unbind(multicast_of(handle), device, offset, size);
    sim_physical_unlock();
    return result;
}
