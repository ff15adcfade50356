/*
 * External memory: what graphics APIs export. A file that this driver exported is the memory it names; any other file stands
 * for memory made by such an API, which this process has on the card from import to destruction.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign.h"
#include "handle.h"

typedef struct CUextMemory_st *CUexternalMemory;

struct handle_desc {
    int type;
    union {
        int fd;
        void *words[2];
    } handle;
    unsigned long long size;
    unsigned int flags, reserved[16];
};

struct buffer_desc {
    unsigned long long offset, size;
    unsigned int flags, reserved[16];
};

struct mipmap_desc {
    unsigned long long offset;
    CUDA_ARRAY3D_DESCRIPTOR array;
    unsigned int levels, reserved[16];
};

enum { OPAQUE_FD = 1, DEDICATED = 1 };

/* Under the lock of physical memory. */
static struct sim_physical *adopt(int fd, size_t size, struct sim_device *device)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || (size_t)info.st_size < size || !sim_device_charge(device, sim_blocks(size)))
        return NULL;
    struct sim_physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL) {
        sim_device_release(device, sim_blocks(size));
        return NULL;
    }
    *physical = (struct sim_physical){.device = device, .size = sim_blocks(size), .fd = dup(fd), .references = 1};
    return physical;
}

/* The driver owns the file from here on, and closes it. */
SIM_API CUresult cuImportExternalMemory(CUexternalMemory *out, const struct handle_desc *desc)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || desc == NULL || desc->size == 0 || desc->flags > DEDICATED)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_physical_lock();
    struct sim_physical *physical = sim_physical_import(desc->handle.fd);
    if (physical == NULL)
        physical = adopt(desc->handle.fd, desc->size, context->device);
    sim_physical_unlock();
    if (physical == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    close(desc->handle.fd);
    *out = sim_handle_new(SIM_EXTERNAL, physical);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    struct sim_physical *physical = sim_handle_end(handle, SIM_EXTERNAL);
    if (physical == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_physical_lock();
    sim_physical_drop(physical);
    sim_physical_unlock();
    return CUDA_SUCCESS;
}

SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle, const struct buffer_desc *desc)
{
    enum { PAGE = 4096 };
    SIM_NEED_CONTEXT(context);
    (void)context;
    struct sim_physical *physical = sim_handle_get(handle, SIM_EXTERNAL);
    if (physical == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (out == NULL || desc == NULL || desc->flags != 0 || desc->size == 0 || desc->offset % PAGE != 0 ||
        desc->offset > physical->size || desc->size > physical->size - desc->offset)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_foreign_map(physical, desc->offset, desc->size, out);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels);

/* An array without memory of its own: the external memory is behind it. */
SIM_API CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *out, CUexternalMemory handle,
                                                         const struct mipmap_desc *desc)
{
    enum { DEFERRED = 0x80 };
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (sim_handle_get(handle, SIM_EXTERNAL) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (out == NULL || desc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = desc->array;
    descriptor.flags |= DEFERRED;
    return cuMipmappedArrayCreate(out, &descriptor, desc->levels);
}
