/* A driver that has next to nothing: what the interceptor asks of a driver may be missing. Built as libcuda.so.1.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INVALID_DEVICE 101

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

static int take(uint64_t *block, size_t bytes) {
  *block = next;
  next += bytes;
  return 0;
}

int cuMemAlloc_v2(uint64_t *block, size_t bytes) { return take(block, bytes); }

int cuMemAllocManaged(uint64_t *block, size_t bytes, unsigned flags) { return flags == 1 ? take(block, bytes) : 1; }

/* As on devices that do not share managed memory with the host while they work. */
int cuMemAdvise(uint64_t block, size_t bytes, int advice, int device) {
  (void)block, (void)bytes, (void)advice, (void)device;
  return INVALID_DEVICE;
}

int cuMemFree_v2(uint64_t block) { return block == 0; }
