/* The entries that make physical memory, tell what it is, and hand it to other processes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "handle.h"
#include "heap.h"
#include "physical.h"

enum { HANDLE_TYPES = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC };

static bool on_host(const CUmemAllocationProp *prop)
{
    return prop->location.type >= CU_MEM_LOCATION_TYPE_HOST && prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!on_host(prop) && !sim_location_is_device(prop->location))
        return CUDA_ERROR_INVALID_VALUE;
    if (!on_host(prop) && sim_device_at(prop->location) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return (prop->requested_handle_types & ~HANDLE_TYPES) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
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
    struct sim_device *device = on_host(prop) ? NULL : sim_device_at(prop->location);
    sim_physical_collect();
    if (device != NULL && (!sim_device_attach(device) || !sim_device_charge(device, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_physical *physical = sim_physical_new(size, prop, device);
    if (physical == NULL) {
        if (device != NULL)
            sim_device_release(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = physical->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_NEED_INIT();
    sim_physical_lock();
    struct sim_physical *physical = sim_physical_of(handle);
    if (physical != NULL && --physical->handles == 0)
        sim_handle_end((const void *)(uintptr_t)handle, SIM_ALLOCATION);
    if (physical != NULL)
        sim_physical_drop(physical);
    sim_physical_unlock();
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
    sim_physical_lock();
    const struct sim_physical *physical = sim_physical_of(handle);
    if (physical != NULL && prop != NULL)
        *prop = physical->prop;
    sim_physical_unlock();
    return physical == NULL || prop == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- between processes ---- */

/* A fabric handle here: where the exporting process has the file. It is good while that process lives. */
struct fabric {
    char path[CU_IPC_HANDLE_SIZE];
};

/* Under the lock. */
static CUresult export(struct sim_physical *physical, int type, void *out)
{
    if (physical == NULL || (physical->prop.requested_handle_types & type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_physical_share(physical))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        struct fabric *fabric = memset(out, 0, sizeof *fabric);
        snprintf(fabric->path, sizeof fabric->path, "/proc/%d/fd/%d", (int)getpid(), physical->fd);
        return CUDA_SUCCESS;
    }
    int fd = sim_physical_file(physical);
    *(int *)out = fd;
    return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

SIM_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                              unsigned long long flags)
{
    SIM_NEED_INIT();
    if (out == NULL || flags != 0 || (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_lock();
    CUresult result = export(sim_physical_of(handle), type, out);
    sim_physical_unlock();
    return result;
}

static int open_fabric(const void *handle)
{
    struct fabric fabric;
    memcpy(&fabric, handle, sizeof fabric);
    bool ours = strncmp(fabric.path, "/proc/", 6) == 0 && memchr(fabric.path, '\0', sizeof fabric.path) != NULL;
    return ours ? open(fabric.path, O_RDWR | O_CLOEXEC) : -1;
}

static CUresult import(CUmemGenericAllocationHandle *out, int fd)
{
    sim_physical_lock();
    struct sim_physical *physical = sim_physical_import(fd);
    if (physical != NULL) {
        *out = sim_physical_handle(physical);
        sim_physical_drop(physical); /* the handle has its own reference */
    }
    sim_physical_unlock();
    return physical == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* A file descriptor is the value of the pointer; a fabric handle is what it points to. */
SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, int type)
{
    SIM_NEED_INIT();
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return import(out, (int)(intptr_t)handle);
    if (type != CU_MEM_HANDLE_TYPE_FABRIC || handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = open_fabric(handle);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = import(out, fd);
    close(fd);
    return result;
}
