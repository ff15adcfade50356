/* Every function of NVML that no other file defines: there, and not supported. */
#include "library.h"

#define ENTRY(name)                                                                           \
    __attribute__((weak)) SIM_API nvmlReturn_t name(void);                                    \
    nvmlReturn_t name(void)                                                                   \
    {                                                                                         \
        nvmlReturn_t result = sim_nvml_need();                                                \
        return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;                    \
    }
#include "../entries/nvml.def"
#undef ENTRY
