/* Utilisation by process, as the older entry of NVML tells it. */
#ifndef SIM_NVML_SAMPLE_H
#define SIM_NVML_SAMPLE_H

#include "library.h"

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *out, unsigned int *count,
                                             unsigned long long last_seen);

#endif
