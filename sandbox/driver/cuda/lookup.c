/* cuGetProcAddress: by name, version and kind of default stream. It works before cuInit. Versions from the future, and
 * negative ones, mean the newest that the driver has. A name whose functions differ by the default stream has nothing for
 * per-thread streams before the version that brought these. */
#include "device.h"
#include "table.h"

enum { BOTH_KINDS = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

static CUresult look_up(const char *name, void **out, int version, uint64_t flags, int *status)
{
    bool known = false;
    int newest = sim_driver_version();
    if (name == NULL || out == NULL || flags > BOTH_KINDS)
        return CUDA_ERROR_INVALID_VALUE;
    if (version < 0 || version > newest)
        version = newest;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 && sim_table_has(name, STREAM_PER_THREAD);
    void *entry = sim_table_find(name, version, per_thread ? STREAM_PER_THREAD : STREAM_LEGACY, &known);
    *out = entry;
    *status = entry != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
              : known       ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
    int ignored;
    return look_up(name, out, version, flags, status == NULL ? &ignored : status);
}

/* The entry of CUDA 11.3 had no status: what is not found is an error, and leaves the caller's word alone. */
SIM_API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    int status;
    void *found;
    CUresult result = look_up(name, out == NULL ? NULL : &found, version, flags, &status);
    if (result != CUDA_SUCCESS)
        return result;
    if (status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    *out = found;
    return CUDA_SUCCESS;
}

/* The private tables of the real driver, which libcudart insists on. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
