/* cuGetProcAddress: by name, version and kind of default stream. It works before cuInit. */
#include "device.h"
#include "table.h"

static CUresult look_up(const char *name, void **out, int version, uint64_t flags, int *status)
{
    bool known = false;
    void *entry = NULL;
    if (name == NULL || out == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM || version > sim_driver_version())
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        entry = sim_table_find(name, version, STREAM_PER_THREAD, &known);
    if (entry == NULL)
        entry = sim_table_find(name, version, STREAM_LEGACY, &known);
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

/* The entry of CUDA 11.3 had no status: what is not found is an error. */
SIM_API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    int status;
    CUresult result = look_up(name, out, version, flags, &status);
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}

/* The private tables of the real driver, which libcudart insists on. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
