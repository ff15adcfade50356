/* Keeps one card busy by one way to submit work, and by nothing else: submitters PTX CARD WAY. It prints "ready", waits for a line
 * with the milliseconds that it shall go on for, and ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCKING_SYNC 4
#define NON_BLOCKING 1
#define CAPTURE_RELAXED 2
#define PER_THREAD ((void *)2)
#define BYTES (1 << 20)
#define TOGETHER 4
#define STREAMS 2

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned attribute_count;
} launch_config;

typedef struct {
  void *function;
  unsigned grid[3], block[3], shared;
  void *stream, **params;
} launch_params;

typedef struct {
  int access, source_type, source_id, target_type, target_id;
  unsigned flags, padding[4];
} copy_attributes;

#define GRID unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
int cuInit(unsigned), cuDevicePrimaryCtxSetFlags_v2(int, unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
int cuLaunchHostFunc(void *, void (*)(void *), void *), cuStreamQuery(void *), cuStreamSynchronize(void *);
int cuStreamCreate(void **, unsigned), cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, uint64_t), cuGraphLaunch(void *, void *), cuGraphLaunch_ptsz(void *, void *);
int cuLaunchKernel(void *, GRID, void *, void **, void **), cuLaunchKernel_ptsz(void *, GRID, void *, void **, void **);
int cuLaunchCooperativeKernel(void *, GRID, void *, void **), cuLaunchCooperativeKernel_ptsz(void *, GRID, void *, void **);
int cuLaunchCooperativeKernelMultiDevice(launch_params *, unsigned, unsigned);
int cuLaunchKernelEx(const launch_config *, void *, void **, void **), cuLaunchKernelEx_ptsz(const launch_config *, void *, void **, void **);
int cuFuncSetBlockShape(void *, int, int, int), cuParamSetSize(void *, unsigned), cuParamSetv(void *, int, void *, unsigned);
int cuLaunch(void *), cuLaunchGrid(void *, int, int), cuLaunchGridAsync(void *, int, int, void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemAllocHost_v2(void **, size_t);
int cuMemcpy(uint64_t, uint64_t, size_t), cuMemcpyAsync(uint64_t, uint64_t, size_t, void *);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t), cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuMemcpyDtoD_v2(uint64_t, uint64_t, size_t), cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void *);
int cuMemcpyBatchAsync_v2(uint64_t *, uint64_t *, size_t *, size_t, copy_attributes *, size_t *, size_t, void *);
int cuMemsetD8_v2(uint64_t, unsigned char, size_t), cuMemsetD8Async(uint64_t, unsigned char, size_t, void *);
int cuMemsetD32_v2(uint64_t, unsigned, size_t), cuMemsetD2D8Async(uint64_t, size_t, unsigned char, size_t, size_t, void *);

static void *context, *kernel, *stream, *graph, *pageable, *pinned;
static uint64_t device, other, kernel_ns = 1000000, end_ns;
static void *params[] = {&kernel_ns};

static void fail(const char *what, int result) {
  fprintf(stderr, "submitters: %s: %d\n", what, result);
  exit(1);
}

#define CHECK(call)                    \
  do {                                 \
    int result_ = (call);              \
    if (result_) fail(#call, result_); \
  } while (0)

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- the ways ---- */

#define SHAPE 64, 1, 1, 256, 1, 1, 0
#define WAY(name, call) \
  static int name(void) { return call; }

static const launch_config *config(void *on) {
  static launch_config made = {.grid = {64, 1, 1}, .block = {256, 1, 1}};
  made.stream = on;
  return &made;
}

static launch_params *one_device(void) {
  static launch_params made = {.grid = {64, 1, 1}, .block = {256, 1, 1}};
  made.function = kernel, made.stream = stream, made.params = params;
  return &made;
}

static int batch(void) {
  copy_attributes attributes = {.access = 1};
  uint64_t targets[] = {device, device}, sources[] = {other, other};
  size_t sizes[] = {BYTES, BYTES}, first = 0;
  return cuMemcpyBatchAsync_v2(targets, sources, sizes, 2, &attributes, &first, 1, stream);
}

WAY(launched, cuLaunchKernel(kernel, SHAPE, stream, params, NULL))
WAY(launched_by_default, cuLaunchKernel(kernel, SHAPE, NULL, params, NULL))
WAY(launched_ptsz, cuLaunchKernel_ptsz(kernel, SHAPE, NULL, params, NULL))
WAY(launched_per_thread, cuLaunchKernel(kernel, SHAPE, PER_THREAD, params, NULL))
WAY(launched_ex, cuLaunchKernelEx(config(stream), kernel, params, NULL))
WAY(launched_ex_ptsz, cuLaunchKernelEx_ptsz(config(NULL), kernel, params, NULL))
WAY(cooperative, cuLaunchCooperativeKernel(kernel, SHAPE, stream, params))
WAY(cooperative_ptsz, cuLaunchCooperativeKernel_ptsz(kernel, SHAPE, NULL, params))
WAY(multi_device, cuLaunchCooperativeKernelMultiDevice(one_device(), 1, 0))
WAY(legacy, cuLaunch(kernel))
WAY(legacy_grid, cuLaunchGrid(kernel, 8, 8))
WAY(legacy_grid_async, cuLaunchGridAsync(kernel, 8, 8, stream))
WAY(graphs, cuGraphLaunch(graph, stream))
WAY(graphs_ptsz, cuGraphLaunch_ptsz(graph, NULL))
WAY(copied, cuMemcpy(device, other, BYTES))
WAY(copied_async, cuMemcpyAsync(device, other, BYTES, stream))
WAY(in, cuMemcpyHtoD_v2(device, pageable, BYTES))
WAY(in_async, cuMemcpyHtoDAsync_v2(device, pinned, BYTES, stream))
WAY(out, cuMemcpyDtoH_v2(pageable, device, BYTES))
WAY(out_async, cuMemcpyDtoHAsync_v2(pinned, device, BYTES, stream))
WAY(within, cuMemcpyDtoD_v2(device, other, BYTES))
WAY(within_async, cuMemcpyDtoDAsync_v2(device, other, BYTES, stream))
WAY(filled, cuMemsetD8_v2(device, 7, BYTES))
WAY(filled_async, cuMemsetD8Async(device, 7, BYTES, stream))
WAY(filled_words, cuMemsetD32_v2(device, 7, BYTES / 4))
WAY(filled_box, cuMemsetD2D8Async(device, 1024, 7, 1024, BYTES / 1024, stream))

static int on_two_streams(void) {
  static _Thread_local void *own[STREAMS];
  static _Thread_local unsigned turn;
  for (int i = 0; !own[0] && i < STREAMS; i++) CHECK(cuStreamCreate(&own[STREAMS - 1 - i], NON_BLOCKING));
  return cuLaunchKernel(kernel, SHAPE, own[turn++ % STREAMS], params, NULL);
}

static void nap(void *milliseconds) { usleep(*(unsigned *)milliseconds * 1000); }

/* One stream waits for the host again and again, and has a kernel behind that; the other is never without one. */
static int beside_a_wait(void) {
  static void *own[STREAMS];
  static unsigned milliseconds = 150;
  for (int i = 0; !own[0] && i < STREAMS; i++) CHECK(cuStreamCreate(&own[STREAMS - 1 - i], NON_BLOCKING));
  if (!cuStreamQuery(own[0])) {
    CHECK(cuLaunchHostFunc(own[0], nap, &milliseconds));
    CHECK(cuLaunchKernel(kernel, SHAPE, own[0], params, NULL));
  }
  for (int i = 1; i <= 16 * TOGETHER; i++) {
    CHECK(cuLaunchKernel(kernel, SHAPE, own[1], params, NULL));
    if (i % TOGETHER == 0) CHECK(cuStreamSynchronize(own[1]));
  }
  return 0;
}

static const struct {
  const char *name;
  int (*submit)(void);
  int threads;
} ways[] = {
    {"launched", launched, 1},
    {"launched_by_default", launched_by_default, 1},
    {"launched_ptsz", launched_ptsz, 2},
    {"launched_per_thread", launched_per_thread, 2},
    {"launched_ex", launched_ex, 1},
    {"launched_ex_ptsz", launched_ex_ptsz, 1},
    {"cooperative", cooperative, 1},
    {"cooperative_ptsz", cooperative_ptsz, 1},
    {"multi_device", multi_device, 1},
    {"legacy", legacy, 1},
    {"legacy_grid", legacy_grid, 1},
    {"legacy_grid_async", legacy_grid_async, 1},
    {"graphs", graphs, 1},
    {"graphs_ptsz", graphs_ptsz, 1},
    {"two_threads_two_streams", on_two_streams, 2},
    {"beside_a_wait", beside_a_wait, 1},
    {"copied", copied, 1},
    {"copied_async", copied_async, 1},
    {"in", in, 1},
    {"in_async", in_async, 1},
    {"out", out, 1},
    {"out_async", out_async, 1},
    {"within", within, 1},
    {"within_async", within_async, 1},
    {"batch", batch, 1},
    {"filled", filled, 1},
    {"filled_async", filled_async, 1},
    {"filled_words", filled_words, 1},
    {"filled_box", filled_box, 1},
};

/* ---- the program ---- */

static char *read_text(const char *path) {
  static char text[65536];
  FILE *file = fopen(path, "rb");
  if (!file) fail(path, 1);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

static void start(const char *ptx, int card) {
  void *module, *template;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxSetFlags_v2(card, BLOCKING_SYNC));
  CHECK(cuDevicePrimaryCtxRetain(&context, card));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, read_text(ptx)));
  CHECK(cuModuleGetFunction(&kernel, module, "aliquot_spin"));
  CHECK(cuFuncSetBlockShape(kernel, 256, 1, 1));
  CHECK(cuParamSetv(kernel, 0, &kernel_ns, sizeof kernel_ns));
  CHECK(cuParamSetSize(kernel, sizeof kernel_ns));
  CHECK(cuStreamCreate(&stream, NON_BLOCKING));
  CHECK(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
  CHECK(launched());
  CHECK(cuStreamEndCapture(stream, &template));
  CHECK(cuGraphInstantiateWithFlags(&graph, template, 0));
  CHECK(cuMemAlloc_v2(&device, BYTES));
  CHECK(cuMemAlloc_v2(&other, BYTES));
  CHECK(cuMemAllocHost_v2(&pinned, BYTES));
  if (!(pageable = malloc(BYTES))) fail("malloc", 1);
}

static void *work(void *submit) {
  CHECK(cuCtxSetCurrent(context));
  while (now_ns() < end_ns) {
    for (int i = 0; i < TOGETHER; i++) CHECK((*(int (**)(void))submit)());
    CHECK(cuCtxSynchronize());
  }
  return NULL;
}

int main(int argc, char **argv) {
  uint64_t for_ms;
  size_t way = 0;
  if (argc != 4) fail("usage: submitters PTX CARD WAY", 1);
  while (way < sizeof ways / sizeof *ways && strcmp(ways[way].name, argv[3])) way++;
  if (way == sizeof ways / sizeof *ways) fail(argv[3], 1);
  start(argv[1], atoi(argv[2]));
  puts("ready"), fflush(stdout);
  if (scanf("%lu", &for_ms) != 1) return 1;
  end_ns = now_ns() + for_ms * 1000000;
  pthread_t second;
  int (*submit)(void) = ways[way].submit;
  if (ways[way].threads == 2) pthread_create(&second, NULL, work, &submit);
  work(&submit);
  if (ways[way].threads == 2) pthread_join(second, NULL);
  return 0;
}
