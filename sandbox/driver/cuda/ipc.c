/* The entries that share allocations and events with other processes. */
#include <string.h>
#include <unistd.h>

#include "event.h"
#include "foreign.h"
#include "handle.h"
#include "pool.h"

/* Passed by value. */
struct ipc_handle {
    char bytes[CU_IPC_HANDLE_SIZE];
};

SIM_API CUresult cuIpcGetMemHandle(struct ipc_handle *out, CUdeviceptr address)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return sim_foreign_name(address, 1U << SIM_MEMORY_DEVICE, out);
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, struct ipc_handle handle, unsigned int flags)
{
    enum { LAZY_PEER_ACCESS = 1 };
    SIM_NEED_CONTEXT(context);
    (void)context;
    return flags != LAZY_PEER_ACCESS ? CUDA_ERROR_INVALID_VALUE : sim_foreign_open(&handle, SIM_FOREIGN_IPC, out);
}

SIM_API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, struct ipc_handle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return sim_foreign_close(address, 1U << SIM_FOREIGN_IPC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- events: what is opened is an event of its own, which orders no work of the other process ---- */

struct event_name {
    char magic[8];
    int32_t pid;
    unsigned int flags;
};

static const char EVENT[8] = "simevt1";

CUresult cuEventCreate(CUevent *out, unsigned int flags);

SIM_API CUresult cuIpcGetEventHandle(struct ipc_handle *out, CUevent handle)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    const struct sim_event *event = sim_handle_get(handle, SIM_EVENT);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event == NULL || (event->flags & CU_EVENT_INTERPROCESS) == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    struct event_name name = {.pid = (int32_t)getpid(), .flags = event->flags};
    memcpy(name.magic, EVENT, sizeof name.magic);
    memset(out, 0, sizeof *out);
    memcpy(out, &name, sizeof name);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent *out, struct ipc_handle handle)
{
    struct event_name name;
    SIM_NEED_CONTEXT(context);
    (void)context;
    memcpy(&name, &handle, sizeof name);
    if (out == NULL || memcmp(name.magic, EVENT, sizeof name.magic) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return name.pid == (int32_t)getpid() ? CUDA_ERROR_INVALID_CONTEXT : cuEventCreate(out, name.flags);
}

/* ---- pools: the importer maps single allocations, and cannot allocate ---- */

struct pool_name {
    char magic[16];
    int unit;
};

static const char POOL[16] = "simgpu-pool-1";

SIM_API CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, int type, unsigned long long flags)
{
    SIM_NEED_INIT();
    const struct sim_pool *pool = sim_handle_get(handle, SIM_POOL);
    if (out == NULL || pool == NULL || flags != 0 || pool->imported || type == 0 || (pool->handle_types & type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct pool_name name = {.unit = sim_unit_index(pool->device->unit)};
    memcpy(name.magic, POOL, sizeof name.magic);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memset(out, 0, CU_IPC_HANDLE_SIZE);
        memcpy(out, &name, sizeof name);
        return CUDA_SUCCESS;
    }
    int fd = sim_file_of(&name, sizeof name);
    *(int *)out = fd;
    return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static bool read_pool(struct pool_name *name, void *handle, int type)
{
    memset(name, 0, sizeof *name);
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        if (pread((int)(intptr_t)handle, name, sizeof *name, 0) != (ssize_t)sizeof *name)
            return false;
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC && handle != NULL) {
        memcpy(name, handle, sizeof *name);
    }
    return memcmp(name->magic, POOL, sizeof name->magic) == 0;
}

SIM_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, int type, unsigned long long flags)
{
    struct pool_name name;
    SIM_NEED_INIT();
    if (out == NULL || flags != 0 || !read_pool(&name, handle, type))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_device *device = sim_device_of_unit(name.unit);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_pool *pool = sim_pool_imported(device);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolExportPointer(void *out, CUdeviceptr address)
{
    struct sim_allocation found;
    SIM_NEED_INIT();
    if (!sim_heap_find(address, &found) || found.pool == NULL || found.pool->handle_types == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_foreign_name(address, 1U << SIM_MEMORY_POOL, out);
}

SIM_API CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle, const void *name)
{
    SIM_NEED_INIT();
    const struct sim_pool *pool = sim_handle_get(handle, SIM_POOL);
    if (out == NULL || pool == NULL || !pool->imported || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_foreign_open(name, SIM_FOREIGN_POOL, out);
}
