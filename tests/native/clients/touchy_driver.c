/* A driver of pools that ends the program which asks about one that is destroyed, before the question or under it, as a real one
 * may that takes handles for pointers. Built as libcuda.so.1.
 * SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define POOLS 65536
#define LOOKS 3

enum { ALIVE = 1, DEAD };

static atomic_int pools[POOLS];
static atomic_uint made;
static uint64_t context;

int cuInit(unsigned flags) { return flags != 0; }

int cuCtxSetCurrent(void *wanted) { return wanted == NULL; }

int cuCtxGetDevice(int *device) {
  *device = 0;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **out, int device) {
  *out = &context;
  return device;
}

int cuDeviceGetUuid(uint8_t *uuid, int device) {
  memset(uuid, 0xAA, 16);
  return device;
}

int cuMemPoolCreate(atomic_int **pool, const void *props) {
  *pool = &pools[atomic_fetch_add(&made, 1) % POOLS];
  atomic_store(*pool, ALIVE);
  return props == NULL;
}

int cuMemPoolDestroy(atomic_int *pool) { return atomic_exchange(pool, DEAD) != ALIVE; }

static int ask(atomic_int *pool) {
  for (int i = 0; i < LOOKS; i++, sched_yield())
    if (atomic_load(pool) != ALIVE) _exit(9);
  return 0;
}

int cuMemPoolGetAttribute(atomic_int *pool, int attribute, void *value) {
  memset(value, 0, attribute < 4 || attribute > 8 ? 4 : 8);
  return ask(pool);
}

int cuMemPoolTrimTo(atomic_int *pool, size_t keep) { return ask(pool) + (keep != 0); }

int cuStreamSynchronize(void *stream) { return stream != NULL; }
