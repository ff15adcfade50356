/* Makes the driver's calls that the allocators of frameworks make, in their order: fills what it is given, is refused, recovers
 * as the framework does, frees, and does it again.
 *
 *   framework_pools caching      PyTorch's own: segments of 2 and 20 MiB and larger ones, kept when freed; when refused it waits,
 *                                frees the segments that are unused, and tries again
 *   framework_pools expandable   PyTorch's expandable segments: 20 MiB at a time created and mapped behind one another; when
 *                                refused it unmaps what is unused
 *   framework_pools async        PyTorch's cudaMallocAsync: the device's pool told to keep all; empty_cache() waits and trims
 *   framework_pools arena        CuPy's: blocks of the sizes asked for, kept when freed; when refused free_all_blocks()
 *   framework_pools resource     RMM's: a pool of its own told to keep all, primed with half of what is free
 *
 * Prints what it got in each round, in MiB: in pieces of 8, then of 60, and after it has recovered of 120.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
#define ROUNDS 1000
#define MOST 256
#define OUT_OF_MEMORY 2
#define RELEASE_THRESHOLD 4

typedef struct {
  int allocation_type, handle_types, location_type, device;
  uint64_t rest[9];
} place;

#define DRIVER(X)                                                              \
  X(cuInit, (unsigned))                                                        \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                  \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                       \
  X(cuCtxSetCurrent, (void *))                                                 \
  X(cuCtxSynchronize, (void))                                                  \
  X(cuMemGetInfo_v2, (size_t *, size_t *))                                     \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                       \
  X(cuMemFree_v2, (uint64_t))                                                  \
  X(cuMemAllocAsync, (uint64_t *, size_t, uint64_t))                           \
  X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, uint64_t, uint64_t))         \
  X(cuMemFreeAsync, (uint64_t, uint64_t))                                      \
  X(cuMemPoolCreate, (uint64_t *, const place *))                              \
  X(cuMemPoolDestroy, (uint64_t))                                              \
  X(cuMemPoolTrimTo, (uint64_t, size_t))                                       \
  X(cuMemPoolSetAttribute, (uint64_t, int, void *))                            \
  X(cuDeviceGetDefaultMemPool, (uint64_t *, int))                              \
  X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t))     \
  X(cuMemAddressFree, (uint64_t, size_t))                                      \
  X(cuMemCreate, (uint64_t *, size_t, const place *, uint64_t))                \
  X(cuMemRelease, (uint64_t))                                                  \
  X(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t))                  \
  X(cuMemUnmap, (uint64_t, size_t))                                            \
  X(cuMemSetAccess, (uint64_t, size_t, const void *, size_t))                  \
  X(cuStreamCreate, (uint64_t *, unsigned))                                    \
  X(cuStreamDestroy_v2, (uint64_t))                                            \
  X(cuStreamSynchronize, (uint64_t))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER(DECLARE)

static const place device_memory = {1, 0, 1, 0, {0}};
static uint64_t stream, pool, reserved;

static void must(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %d\n", what, status);
  exit(3);
}
#define MUST(call) must(call, #call)

/* ---- what frameworks keep: segments of the driver's, used or not ---- */

typedef struct {
  uint64_t memory, size;
  int used;
} segment;

static segment segments[MOST];
static int count;

static size_t whole(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

static size_t segment_size(size_t size) {
  if (size <= MIB) return 2 * MIB;
  return size < 10 * MIB ? 20 * MIB : whole(size, 2 * MIB);
}

static void free_unused(void) {
  int kept = 0;
  MUST(cuCtxSynchronize());
  for (int i = 0; i < count; i++) {
    if (segments[i].used) segments[kept++] = segments[i];
    else MUST(cuMemFree_v2(segments[i].memory));
  }
  count = kept;
}

static int take_segment(size_t size) {
  for (int i = 0; i < count; i++)
    if (!segments[i].used && segments[i].size == size) return segments[i].used = 1, 0;
  uint64_t memory;
  int status = cuMemAlloc_v2(&memory, size);
  if (status == OUT_OF_MEMORY) {
    free_unused();
    status = cuMemAlloc_v2(&memory, size);
  }
  if (!status) segments[count++] = (segment){memory, size, 1};
  return status;
}

static int take_caching(size_t size) { return take_segment(segment_size(size)); }
static int take_arena(size_t size) { return take_segment(whole(size, 512)); }

static void release_segments(void) {
  for (int i = 0; i < count; i++) segments[i].used = 0;
}

/* ---- expandable segments ---- */

#define PAGE (20 * MIB)

static void unmap_unused(void) {
  MUST(cuStreamSynchronize(stream));
  for (; count && !segments[count - 1].used; count--) MUST(cuMemUnmap(segments[count - 1].memory, PAGE));
}

static int map_page(uint64_t at) {
  uint64_t handle;
  struct {
    int type, id, flags;
  } access = {1, 0, 3};
  int status = cuMemCreate(&handle, PAGE, &device_memory, 0);
  if (status) return status;
  MUST(cuMemMap(at, PAGE, 0, handle, 0));
  MUST(cuMemSetAccess(at, PAGE, &access, 1));
  MUST(cuMemRelease(handle));
  return 0;
}

static int take_expandable(size_t size) {
  int first = 0, wanted = (int)(whole(size, PAGE) / PAGE);
  while (first < count && segments[first].used) first++;
  for (int i = first; i < first + wanted; i++) {
    if (i == count) {
      int status = map_page(reserved + (uint64_t)i * PAGE);
      if (status) {
        while (i-- > first) segments[i].used = 0;
        unmap_unused();
        return status;
      }
      segments[count++] = (segment){reserved + (uint64_t)i * PAGE, PAGE, 0};
    }
    segments[i].used = 1;
  }
  return 0;
}

/* ---- pools ---- */

static int take_from_pool(size_t size) {
  uint64_t memory;
  int status = pool ? cuMemAllocFromPoolAsync(&memory, size, pool, stream) : cuMemAllocAsync(&memory, size, stream);
  if (!status) segments[count++] = (segment){memory, size, 1};
  return status;
}

static void release_to_pool(void) {
  while (count) MUST(cuMemFreeAsync(segments[--count].memory, stream));
}

static void empty_pool(void) {
  uint64_t its = pool;
  if (!its) MUST(cuDeviceGetDefaultMemPool(&its, 0));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemPoolTrimTo(its, 0));
}

/* ---- frameworks ---- */

static void begin_expandable(void) { MUST(cuMemAddressReserve(&reserved, MOST * PAGE, 0, 0, 0)); }
static void end_expandable(void) {
  unmap_unused();
  MUST(cuMemAddressFree(reserved, MOST * PAGE));
}

static void keep_all(uint64_t its) {
  uint64_t all = UINT64_MAX;
  MUST(cuMemPoolSetAttribute(its, RELEASE_THRESHOLD, &all));
}

static void begin_async(void) {
  uint64_t its;
  MUST(cuDeviceGetDefaultMemPool(&its, 0));
  keep_all(its);
}

static void begin_resource(void) {
  size_t unused, total;
  MUST(cuMemPoolCreate(&pool, &device_memory));
  keep_all(pool);
  MUST(cuMemGetInfo_v2(&unused, &total));
  MUST(take_from_pool(unused / 2));
  release_to_pool();
}

static void end_resource(void) { MUST(cuMemPoolDestroy(pool)); }
static void nothing(void) {}

typedef struct {
  const char *name;
  void (*begin)(void);
  int (*take)(size_t size);
  void (*release)(void); /* what the program has, to the framework */
  void (*recover)(void); /* what the framework keeps, to the driver */
  void (*end)(void);
} framework;

static const framework frameworks[] = {
    {"caching", nothing, take_caching, release_segments, free_unused, nothing},
    {"expandable", begin_expandable, take_expandable, release_segments, unmap_unused, end_expandable},
    {"async", begin_async, take_from_pool, release_to_pool, empty_pool, nothing},
    {"arena", nothing, take_arena, release_segments, free_unused, nothing},
    {"resource", begin_resource, take_from_pool, release_to_pool, empty_pool, end_resource},
};

static unsigned fill(const framework *f, size_t size) {
  unsigned got = 0;
  int status;
  while (!(status = f->take(size))) got += (unsigned)(size / MIB);
  if (status != OUT_OF_MEMORY) must(status, "take");
  return got;
}

int main(int argc, char **argv) {
  const framework *f = frameworks;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
  if (argc < 2 || !driver) return 2;
  static char output[1 << 16]; /* nothing is heard of it before the end */
  setvbuf(stdout, output, _IOFBF, sizeof output);
  while (strcmp(f->name, argv[1])) f++;
#define LOOK_UP(name, parameters) *(void **)&name = dlsym(driver, #name);
  DRIVER(LOOK_UP)
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, 1));
  f->begin();
  for (int round = 0; round < ROUNDS; round++) {
    unsigned small = fill(f, 8 * MIB);
    f->release();
    unsigned large = fill(f, 60 * MIB);
    f->release();
    f->recover();
    printf("%u %u %u\n", small, large, fill(f, 120 * MIB));
    f->release();
  }
  f->recover();
  f->end();
  MUST(cuStreamDestroy_v2(stream));
  printf("all given back\n");
  fflush(stdout);
  return getchar() == EOF ? 0 : 1;
}
