/* An NVML that tells everything of everybody: what our hooks must not pass on. Built as a library for a test.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#define SUCCESS 0

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  (void)device;
  strncpy(uuid, "GPU-00000000-0000-0000-0000-000000000000", size);
  return SUCCESS;
}

int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *pids) {
  (void)device;
  *count = 1;
  *pids = 1;
  return SUCCESS;
}

int nvmlDeviceGetAccountingStats(void *device, unsigned pid, void *stats) {
  (void)device, (void)pid, (void)stats;
  return SUCCESS;
}

int nvmlDeviceGetAccountingStats_v2(void *device, void *stats) {
  (void)device, (void)stats;
  return SUCCESS;
}

int nvmlDeviceGetProcessesUtilizationInfo(void *device, void *samples) {
  (void)device, (void)samples;
  return SUCCESS;
}
