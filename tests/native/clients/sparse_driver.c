/* A driver that has next to nothing: what the interceptor asks of a driver may be missing. Built as libcuda.so.1.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t next = 1 << 20;

int cuInit(unsigned flags) { return flags != 0; }

int cuCtxSetCurrent(void *context) { return context == NULL; }

int cuCtxGetDevice(int *device) {
  *device = 0;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &next;
  return device;
}

int cuDeviceGetUuid(uint8_t *uuid, int device) {
  memset(uuid, 0xAA, 16);
  return device;
}

int cuMemAlloc_v2(uint64_t *block, size_t bytes) {
  *block = next;
  next += bytes;
  return 0;
}

int cuMemFree_v2(uint64_t block) { return block == 0; }
