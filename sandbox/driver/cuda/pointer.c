/* What the driver knows about pointers. */
#include <string.h>

#include "handle.h"
#include "host.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"

static bool is_host(const struct sim_allocation *found)
{
    return found->kind == SIM_MEMORY_HOST || found->kind == SIM_MEMORY_REGISTERED ||
           (found->kind == SIM_MEMORY_MAPPED && found->device == NULL);
}

/* Attributes of 32 bits (flags among them are of 8); false for others. */
static bool small_attribute(const struct sim_allocation *found, int attribute, int *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = is_host(found) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = found->device == NULL ? -1 : found->device->ordinal;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value = 3;
        return true;
    default:
        return false;
    }
}

static bool flag_attribute(const struct sim_allocation *found, int attribute, bool *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value = found->kind == SIM_MEMORY_MANAGED;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value = true;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value = false;
        return true;
    default:
        return false;
    }
}

/* Attributes of 64 bits: addresses, sizes, handles. */
static bool wide_attribute(const struct sim_allocation *found, uintptr_t address, int attribute, uint64_t *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value = found->context == NULL ? 0 : (uintptr_t)found->context->handle;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value = address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *value = is_host(found) || found->kind == SIM_MEMORY_MANAGED ? address : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = found->id;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value = found->base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value = found->size;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value = found->pool == NULL ? 0 : (uintptr_t)found->pool->handle;
        return true;
    default:
        return false;
    }
}

static CUresult answer(const struct sim_allocation *found, uintptr_t address, int attribute, void *out)
{
    int small;
    bool flag;
    uint64_t wide;
    if (small_attribute(found, attribute, &small))
        memcpy(out, &small, sizeof small);
    else if (flag_attribute(found, attribute, &flag))
        memcpy(out, &flag, sizeof flag);
    else if (wide_attribute(found, address, attribute, &wide))
        memcpy(out, &wide, sizeof wide);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    struct sim_allocation found;
    SIM_NEED_INIT();
    if (out == NULL || !sim_memory_find(address, &found))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !is_host(&found) && found.kind != SIM_MEMORY_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    return answer(&found, address, attribute, out);
}

/* What is asked of memory that the driver does not know: zeros of the right size. */
static void answer_unknown(int attribute, void *out)
{
    static const struct sim_allocation nothing = {.kind = SIM_MEMORY_DEVICE};
    int small;
    bool flag;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(out, &(int){-2}, sizeof small);
    else if (small_attribute(&nothing, attribute, &small))
        memset(out, 0, sizeof small);
    else if (flag_attribute(&nothing, attribute, &flag))
        memset(out, 0, sizeof flag);
    else
        memset(out, 0, sizeof(uint64_t));
}

SIM_API CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **out, CUdeviceptr address)
{
    struct sim_allocation found;
    SIM_NEED_INIT();
    if (count == 0 || attributes == NULL || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bool known = sim_memory_find(address, &found);
    for (unsigned int i = 0; i < count; i++) {
        if (!known)
            answer_unknown(attributes[i], out[i]);
        else if (answer(&found, address, attributes[i], out[i]) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address)
{
    struct sim_allocation found;
    SIM_NEED_INIT();
    bool settable = attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    return value == NULL || !settable || !sim_memory_find(address, &found) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t size, unsigned int flags)
{
    enum { ATTACH_FLAGS = 7 };
    struct sim_allocation found;
    SIM_NEED_STREAM(handle, stream);
    (void)stream, (void)size;
    if (flags == 0 || flags > ATTACH_FLAGS || !sim_memory_find(address, &found) || found.kind != SIM_MEMORY_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
