/* Takes device memory by every family at once and at random: plain, by the device's pool, by pools of its own that come and go,
 * by graphs that are launched, and as physical memory; each thread in a stream of its own. Every other choice is to give back,
 * to wait, or to trim. At the end all is given back. Prints how often it was served and refused by each family.
 *
 *   pool_storm SEED LARGEST_MIB THREADS ROUNDS FAMILIES    the latter a set of bits
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LIVE 6
#define MIB (1ull << 20)
#define BLOCK (2 * MIB)
#define FAMILIES 5
#define OUT_OF_MEMORY 2

enum { PLAIN, DEVICE_POOL, OWN_POOL, GRAPH, PHYSICAL };

typedef struct {
  int allocation_type, handle_types, location_type, device;
  uint64_t rest[9]; /* of CUmemPoolProps; CUmemAllocationProp is shorter */
} place;

typedef struct {
  uint64_t memory, pool, graph, exec;
  int family;
} block;

#define DRIVER(X)                                                                                                       \
  X(cuInit, (unsigned))                                                                                                 \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                                           \
  X(cuCtxSetCurrent, (void *))                                                                                          \
  X(cuCtxSynchronize, (void))                                                                                           \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                                \
  X(cuMemFree_v2, (uint64_t))                                                                                           \
  X(cuMemAllocAsync, (uint64_t *, size_t, uint64_t))                                                                    \
  X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, uint64_t, uint64_t))                                                  \
  X(cuMemFreeAsync, (uint64_t, uint64_t))                                                                               \
  X(cuMemPoolCreate, (uint64_t *, const place *))                                                                       \
  X(cuMemPoolDestroy, (uint64_t))                                                                                       \
  X(cuMemPoolTrimTo, (uint64_t, size_t))                                                                                \
  X(cuMemPoolSetAttribute, (uint64_t, int, void *))                                                                     \
  X(cuDeviceGetDefaultMemPool, (uint64_t *, int))                                                                       \
  X(cuDeviceGraphMemTrim, (int))                                                                                        \
  X(cuMemCreate, (uint64_t *, size_t, const place *, uint64_t))                                                         \
  X(cuMemRelease, (uint64_t))                                                                                           \
  X(cuStreamCreate, (uint64_t *, unsigned))                                                                             \
  X(cuStreamSynchronize, (uint64_t))                                                                                    \
  X(cuStreamBeginCapture_v2, (uint64_t, int))                                                                           \
  X(cuStreamEndCapture, (uint64_t, uint64_t *))                                                                         \
  X(cuGraphInstantiateWithFlags, (uint64_t *, uint64_t, uint64_t))                                                      \
  X(cuGraphLaunch, (uint64_t, uint64_t))                                                                                \
  X(cuGraphExecDestroy, (uint64_t))                                                                                     \
  X(cuGraphDestroy, (uint64_t))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER(DECLARE)

static void *context;
static uint64_t default_pool;
static unsigned largest, rounds, families;
static atomic_long served[FAMILIES], refused[FAMILIES];
static const place device_memory = {1, 0, 1, 0, {0}};

static void must(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %d\n", what, status);
  exit(3);
}
#define MUST(call) must(call, #call)

/* A graph that takes memory when it is launched, and frees it when it has run. */
static int launch_graph(block *b, size_t bytes, uint64_t stream) {
  uint64_t memory;
  MUST(cuStreamBeginCapture_v2(stream, 1));
  MUST(cuMemAllocAsync(&memory, bytes, stream));
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamEndCapture(stream, &b->graph));
  MUST(cuGraphInstantiateWithFlags(&b->exec, b->graph, 0));
  int status = cuGraphLaunch(b->exec, stream);
  if (!status) return 0;
  MUST(cuGraphExecDestroy(b->exec));
  MUST(cuGraphDestroy(b->graph));
  return status;
}

static int allocate_from_own(block *b, size_t bytes, uint64_t stream) {
  uint64_t all = UINT64_MAX;
  MUST(cuMemPoolCreate(&b->pool, &device_memory));
  MUST(cuMemPoolSetAttribute(b->pool, 4, &all));
  int status = cuMemAllocFromPoolAsync(&b->memory, bytes, b->pool, stream);
  if (status) MUST(cuMemPoolDestroy(b->pool));
  return status;
}

/* What is not from pools comes in whole blocks of the driver's: its rounding is not what is tested here. */
static int take(block *b, size_t bytes, uint64_t stream) {
  size_t blocks = (bytes + BLOCK - 1) / BLOCK * BLOCK;
  switch (b->family) {
  case PLAIN: return cuMemAlloc_v2(&b->memory, blocks);
  case DEVICE_POOL: return cuMemAllocAsync(&b->memory, bytes, stream);
  case OWN_POOL: return allocate_from_own(b, bytes, stream);
  case GRAPH: return launch_graph(b, bytes, stream);
  default: return cuMemCreate(&b->memory, blocks, &device_memory, 0);
  }
}

static void give(const block *b, uint64_t stream, unsigned dice) {
  if (b->family == PHYSICAL) {
    MUST(cuMemRelease(b->memory));
  } else if (b->family == GRAPH) {
    MUST(cuGraphExecDestroy(b->exec));
    MUST(cuGraphDestroy(b->graph));
  } else {
    if (b->family == OWN_POOL && dice & 1) MUST(cuMemPoolDestroy(b->pool));
    MUST(dice & 2 ? cuMemFree_v2(b->memory) : cuMemFreeAsync(b->memory, stream));
    if (b->family == OWN_POOL && !(dice & 1)) MUST(cuMemPoolDestroy(b->pool));
  }
}

static void shrink(uint64_t stream, unsigned dice) {
  if (dice % 4 == 0) MUST(cuMemPoolTrimTo(default_pool, dice * MIB % (64 * MIB)));
  else if (dice % 4 == 1) MUST(cuDeviceGraphMemTrim(0));
  else MUST(cuStreamSynchronize(stream));
}

static void *storm(void *data) {
  unsigned seed = *(unsigned *)data;
  uint64_t stream;
  block live[LIVE] = {{0}};
  int taken[LIVE] = {0};
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, 1));
  for (unsigned round = 0; round < rounds; round++) {
    int at = rand_r(&seed) % LIVE;
    unsigned dice = (unsigned)rand_r(&seed) >> 4;
    if (dice % 8 == 7) {
      shrink(stream, dice >> 3);
    } else if (taken[at]) {
      give(&live[at], stream, dice);
      taken[at] = 0;
    } else {
      do live[at].family = rand_r(&seed) % FAMILIES;
      while (!(families >> live[at].family & 1));
      int status = take(&live[at], 1 + (dice >> 3) % (largest * MIB), stream);
      if (status && status != OUT_OF_MEMORY) MUST(status);
      taken[at] = !status;
      atomic_fetch_add(status ? &refused[live[at].family] : &served[live[at].family], 1);
    }
  }
  for (int i = 0; i < LIVE; i++)
    if (taken[i]) give(&live[i], stream, (unsigned)i);
  MUST(cuStreamSynchronize(stream));
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  unsigned seeds[16], count;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc < 6 || !driver || (count = (unsigned)atoi(argv[3])) > 16) return 2;
#define LOOK_UP(name, parameters) *(void **)&name = dlsym(driver, #name);
  DRIVER(LOOK_UP)
  largest = (unsigned)atoi(argv[2]);
  rounds = (unsigned)atoi(argv[4]);
  families = (unsigned)atoi(argv[5]);
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuDeviceGetDefaultMemPool(&default_pool, 0));
  for (unsigned i = 0; i < count; i++) {
    seeds[i] = (unsigned)atoi(argv[1]) * 16 + i;
    pthread_create(&threads[i], NULL, storm, &seeds[i]);
  }
  for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
  MUST(cuCtxSynchronize());
  MUST(cuMemPoolTrimTo(default_pool, 0));
  MUST(cuDeviceGraphMemTrim(0));
  for (int i = 0; i < FAMILIES; i++) printf("%ld %ld\n", atomic_load(&served[i]), atomic_load(&refused[i]));
  printf("all given back\n");
  fflush(stdout);
  return getchar() == EOF ? 0 : 1;
}
