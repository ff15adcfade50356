/*
 * Every entry of the table that no other file defines: there, and not supported. The definitions are weak, so writing an
 * entry elsewhere is all it takes to add it.
 */
#include "device.h"

#define ENTRY(base, symbol, since, stream)                                             \
    __attribute__((weak)) SIM_API CUresult symbol(void);                               \
    CUresult symbol(void)                                                              \
    {                                                                                  \
        return sim_ready() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;    \
    }
#include "../entries/all.def"
#undef ENTRY
