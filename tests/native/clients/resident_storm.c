/* Takes managed memory at random, some of it larger than any slice, has the card use it, prefetches and advises on parts of it, and
 * takes plain memory beside it; each thread in a stream of its own and, one in four times, in a context of its own that ends with
 * what it has. At the end all is given back. Prints how often plain memory was had and refused.
 *
 *   resident_storm SEED THREADS ROUNDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

#define LIVE 4
#define MIB (1ull << 20)
#define LARGEST 96 /* MiB */
#define OUT_OF_MEMORY 2

#define DRIVER(X)                                                                                                       \
  X(cuInit, (unsigned))                                                                                                 \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                                           \
  X(cuCtxSetCurrent, (void *))                                                                                          \
  X(cuCtxCreate_v2, (void **, unsigned, int))                                                                           \
  X(cuCtxDestroy_v2, (void *))                                                                                          \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                                \
  X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                                  \
  X(cuMemFree_v2, (uint64_t))                                                                                           \
  X(cuMemFreeAsync, (uint64_t, void *))                                                                                 \
  X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *))                                                         \
  X(cuMemPrefetchAsync, (uint64_t, size_t, int, void *))                                                                \
  X(cuMemAdvise, (uint64_t, size_t, int, int))                                                                          \
  X(cuStreamCreate, (void **, unsigned))                                                                                \
  X(cuStreamSynchronize, (void *))                                                                                      \
  X(cuStreamDestroy_v2, (void *))

DRIVER(DECLARE)

static void *primary;
static unsigned rounds;
static atomic_uint had, refused;

static unsigned dice(unsigned *seed, unsigned sides) {
  *seed = *seed * 1664525 + 1013904223;
  return (*seed >> 8) % sides;
}

static void use(unsigned *seed, uint64_t memory, size_t bytes, void *stream) {
  size_t from = dice(seed, (unsigned)(bytes / 4096)) * 4096ull, some = 1 + (size_t)dice(seed, (unsigned)(bytes - from));
  MUST(cuMemsetD8Async(memory + from, 1, 1, stream));
  MUST(cuMemAdvise(memory + from, some, 1 + (int)dice(seed, 6), dice(seed, 2) ? 0 : -1));
  MUST(cuMemPrefetchAsync(memory + from, some, dice(seed, 3) ? 0 : -1, stream));
  if (dice(seed, 4) == 0) MUST(cuStreamSynchronize(stream));
}

static uint64_t plain(unsigned *seed) {
  uint64_t memory;
  int status = cuMemAlloc_v2(&memory, (2 + dice(seed, 23)) * MIB); /* smaller blocks share what the card gives */
  if (status && status != OUT_OF_MEMORY) MUST(status);
  atomic_fetch_add(status ? &refused : &had, 1);
  return status ? 0 : memory;
}

/* In the current context. */
static void take_and_use(unsigned *seed, void *stream, bool free_all) {
  uint64_t managed[LIVE];
  size_t bytes[LIVE];
  int count = 1 + (int)dice(seed, LIVE);
  for (int i = 0; i < count; i++) {
    bytes[i] = (3 + dice(seed, LARGEST)) * MIB;
    MUST(cuMemAllocManaged(&managed[i], bytes[i], 1));
    use(seed, managed[i], bytes[i], stream);
  }
  uint64_t other = plain(seed);
  for (int i = 0; i < count; i++) use(seed, managed[i], bytes[i], stream);
  for (int i = 0; i < count && free_all; i++) MUST(i % 2 ? cuMemFreeAsync(managed[i], stream) : cuMemFree_v2(managed[i]));
  if (other && free_all) MUST(cuMemFree_v2(other));
}

static void take_in_own_context(unsigned *seed) {
  void *context, *stream;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuStreamCreate(&stream, 1));
  take_and_use(seed, stream, false);
  MUST(cuStreamSynchronize(stream)); /* the simulated driver frees no event that ends with its context */
  MUST(cuCtxDestroy_v2(context));
  MUST(cuCtxSetCurrent(primary));
}

static void *storm(void *number) {
  unsigned seed = (unsigned)(uintptr_t)number;
  void *stream;
  MUST(cuCtxSetCurrent(primary));
  MUST(cuStreamCreate(&stream, 1));
  for (unsigned i = 0; i < rounds; i++) {
    if (dice(&seed, 4)) take_and_use(&seed, stream, true);
    else take_in_own_context(&seed);
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy_v2(stream));
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc != 4) return 2;
  unsigned seed = (unsigned)atoi(argv[1]), count = (unsigned)atoi(argv[2]);
  rounds = (unsigned)atoi(argv[3]);
  DRIVER(LOOK_UP)
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  for (unsigned i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, (void *)(uintptr_t)(seed + i));
  for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
  printf("%u %u\n", had, refused);
  return 0;
}
