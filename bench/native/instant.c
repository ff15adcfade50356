/* A driver that answers at once, as libcuda.so.1: against a launch of a few nanoseconds an added one can be seen.
 * It has one card and no work: kernels take no time, and the card's clock stands still until somebody waits for it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default"))) int
#define BLOCKS 65536
#define CARD_BYTES (UINT64_C(16) << 30)
#define FIRST_BLOCK UINT64_C(0x7f0000000000)

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

static uint64_t launches; /* what a launch does: one store, so that the compiler keeps it */
static __thread void *current;
static char primary;
static uint64_t streams[64]; /* a handle each */
static unsigned stream_count;

API cuInit(unsigned flags) { return (void)flags, SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 13050, SUCCESS; }
API cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
API cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
API cuDeviceGetUuid(char uuid[16], int device) { return memset(uuid, 0x11, 16), (void)device, SUCCESS; }
API cuDeviceGetUuid_v2(char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
API cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = CARD_BYTES, (void)device, SUCCESS; }

/* ---- contexts and streams ---- */

API cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &primary, (void)device, SUCCESS; }
API cuCtxSetCurrent(void *context) { return current = context, SUCCESS; }
API cuCtxGetCurrent(void **context) { return *context = current, SUCCESS; }
API cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
API cuStreamCreate(void **stream, unsigned flags) {
  unsigned place = __atomic_fetch_add(&stream_count, 1, __ATOMIC_RELAXED);
  if (place >= sizeof streams / sizeof *streams) return OUT_OF_MEMORY;
  return *stream = &streams[place], (void)flags, SUCCESS;
}
API cuStreamIsCapturing(void *stream, int *status) { return *status = 0, (void)stream, SUCCESS; }
API cuStreamGetDevice(void *stream, int *device) { return *device = 0, (void)stream, SUCCESS; }
API cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, SUCCESS; }

/* ---- memory: places of one size, the last one freed is the next one given ---- */

static uint64_t freed[BLOCKS];
static size_t freed_count, made_count;

API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (bytes > 4096 || (!freed_count && made_count == BLOCKS)) return OUT_OF_MEMORY;
  *address = freed_count ? freed[--freed_count] : FIRST_BLOCK + 4096 * made_count++;
  return SUCCESS;
}

API cuMemGetAllocationGranularity(size_t *granule, const void *prop, int option) {
  return *granule = 2 << 20, (void)prop, (void)option, SUCCESS;
}

API cuMemFree_v2(uint64_t address) { return freed[freed_count++] = address, SUCCESS; }

API cuMemGetInfo_v2(size_t *available, size_t *total) {
  *total = CARD_BYTES;
  *available = CARD_BYTES - 4096 * (made_count - freed_count);
  return SUCCESS;
}

/* ---- work ---- */

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned attribute_count;
} launch_config;

static int launch(void) { return __atomic_store_n(&launches, 1, __ATOMIC_RELAXED), SUCCESS; }

#define LAUNCH_PARAMETERS                                                                                            \
  void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
      void *stream, void **params
#define UNUSED (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)params

API cuLaunchKernel(LAUNCH_PARAMETERS, void **extra) { return UNUSED, (void)extra, launch(); }
API cuLaunchKernel_ptsz(LAUNCH_PARAMETERS, void **extra) { return UNUSED, (void)extra, launch(); }
API cuLaunchCooperativeKernel(LAUNCH_PARAMETERS) { return UNUSED, launch(); }
API cuLaunchCooperativeKernel_ptsz(LAUNCH_PARAMETERS) { return UNUSED, launch(); }
API cuLaunchKernelEx(const launch_config *config, void *function, void **params, void **extra) {
  return (void)config, (void)function, (void)params, (void)extra, launch();
}
API cuLaunchKernelEx_ptsz(const launch_config *config, void *function, void **params, void **extra) {
  return (void)config, (void)function, (void)params, (void)extra, launch();
}
API cuGraphLaunch(void *graph, void *stream) { return (void)graph, (void)stream, launch(); }
API cuGraphLaunch_ptsz(void *graph, void *stream) { return (void)graph, (void)stream, launch(); }

/* ---- events: each remembers when it was recorded ---- */

static struct {
  uint64_t ns;
} events[4096];
static unsigned event_count;
static uint64_t clock_ns;

API cuCtxSynchronize(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  __atomic_store_n(&clock_ns, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, __ATOMIC_RELAXED);
  return SUCCESS;
}

API cuEventCreate(void **event, unsigned flags) {
  unsigned place = __atomic_fetch_add(&event_count, 1, __ATOMIC_RELAXED);
  if (place >= sizeof events / sizeof *events) return OUT_OF_MEMORY;
  return *event = &events[place], (void)flags, SUCCESS;
}
API cuEventDestroy_v2(void *event) { return (void)event, SUCCESS; }
API cuEventRecord(void *event, void *stream) {
  __atomic_store_n((uint64_t *)event, __atomic_load_n(&clock_ns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  return (void)stream, SUCCESS;
}
API cuEventQuery(void *event) { return (void)event, SUCCESS; }
API cuEventElapsedTime(float *ms, void *from, void *to) {
  int64_t ns = (int64_t)(__atomic_load_n((uint64_t *)to, __ATOMIC_RELAXED) - __atomic_load_n((uint64_t *)from, __ATOMIC_RELAXED));
  return *ms = (float)((double)ns / 1e6), SUCCESS;
}

/* ---- look-ups: the newest version, of the flavour of default stream that is asked for; each is looked for once ---- */

static void *look_up(const char *name, bool per_thread) {
  static const char *const endings[2][3] = {{"_v2", "", ""}, {"_ptsz", "_v2", ""}};
  char symbol[128];
  void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *found = NULL;
  for (int i = 0; i < 3 && !found; i++) {
    snprintf(symbol, sizeof symbol, "%s%s", name, endings[per_thread][i]);
    found = dlsym(self, symbol);
  }
  return found;
}

/* The answers are kept in the order of the questions. For the few names of one thread, which is who asks. */
static void *remembered(const char *name, bool per_thread) {
  static struct {
    char name[128];
    bool per_thread;
    void *found;
  } known[256];
  size_t at = 0;
  while (at < sizeof known / sizeof *known - 1 && known[at].name[0] && (known[at].per_thread != per_thread || strcmp(known[at].name, name))) at++;
  if (known[at].name[0] && !strcmp(known[at].name, name)) return known[at].found;
  snprintf(known[at].name, sizeof known[at].name, "%s", name);
  known[at].per_thread = per_thread;
  return known[at].found = look_up(name, per_thread);
}

API cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status) {
  *pfn = remembered(name, flags == 2);
  if (status) *status = *pfn ? 0 : 1;
  return (void)version, *pfn ? SUCCESS : NOT_FOUND;
}
