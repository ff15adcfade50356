/*
 * Every entry of the table that no other file defines: there, and not supported. The definitions are weak, so writing an
 * entry elsewhere is all it takes to add it. SIMGPU_TRACE=1 names the missing entries that a program calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

static CUresult absent(const char *name)
{
    if (!sim_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (getenv("SIMGPU_TRACE") != NULL)
        fprintf(stderr, "simgpu: %s is not supported\n", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define ENTRY(base, symbol, since, stream)               \
    __attribute__((weak)) SIM_API CUresult symbol(void); \
    CUresult symbol(void)                                \
    {                                                    \
        return absent(#symbol);                          \
    }
#include "../entries/all.def"
#undef ENTRY
