/* Managed memory ends with its context, or is freed, while other threads prefetch it and advise on it in streams of another context:
 * a driver finds it or does not. At the end nothing of it is on the card.
 *
 *   managed_race SECONDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "driver.h"

#define BYTES ((size_t)6 << 20)
#define BLOCKS 4
#define HINTERS 3
#define INVALID_VALUE 1

#define FUNCTIONS(F)                                                                                                  \
  F(cuInit, (unsigned)) F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxSetCurrent, (void *)) F(cuCtxSynchronize, (void)) \
  F(cuCtxCreate_v2, (void **, unsigned, int)) F(cuCtxDestroy_v2, (void *)) F(cuStreamCreate, (void **, unsigned))      \
  F(cuStreamSynchronize, (void *)) F(cuMemAllocManaged, (uint64_t *, size_t, unsigned)) F(cuMemFree_v2, (uint64_t))    \
  F(cuMemPrefetchAsync, (uint64_t, size_t, int, void *)) F(cuMemAdvise, (uint64_t, size_t, int, int))                  \
  F(cuMemGetInfo_v2, (size_t *, size_t *))

FUNCTIONS(DECLARE)

static void *primary;
static time_t until;
static uint64_t shared[BLOCKS]; /* relaxed: whatever was there a moment ago may be named */

static bool goes_on(void) { return time(NULL) < until; }

static void may_be_gone(int status) {
  if (status && status != INVALID_VALUE) fprintf(stderr, "a hint: %d\n", status), exit(1);
}

static void *hint(void *unused) {
  void *stream;
  MUST(cuCtxSetCurrent(primary));
  MUST(cuStreamCreate(&stream, 1));
  for (unsigned i = 0; goes_on(); i++) {
    uint64_t address = __atomic_load_n(&shared[i % BLOCKS], __ATOMIC_RELAXED);
    if (!address) continue;
    may_be_gone(cuMemPrefetchAsync(address, BYTES, i & 1 ? 0 : -1, stream));
    may_be_gone(cuMemAdvise(address, BYTES, 1 + (int)(i % 6), i & 2 ? 0 : -1));
    if (i % 64 == 0) MUST(cuStreamSynchronize(stream));
  }
  MUST(cuStreamSynchronize(stream));
  return unused;
}

static void take_and_end(void) {
  void *context;
  uint64_t memory[BLOCKS];
  MUST(cuCtxCreate_v2(&context, 0, 0));
  for (int i = 0; i < BLOCKS; i++) {
    MUST(cuMemAllocManaged(&memory[i], BYTES, 1));
    __atomic_store_n(&shared[i], memory[i], __ATOMIC_RELAXED);
  }
  MUST(cuMemFree_v2(memory[0]));
  MUST(cuCtxDestroy_v2(context));
}

int main(int argc, char **argv) {
  pthread_t hinters[HINTERS];
  size_t available, total;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  FUNCTIONS(LOOK_UP)
  until = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  for (int i = 0; i < HINTERS; i++) pthread_create(&hinters[i], NULL, hint, NULL);
  while (goes_on()) take_and_end();
  for (int i = 0; i < HINTERS; i++) pthread_join(hinters[i], NULL);
  MUST(cuCtxSetCurrent(primary));
  MUST(cuCtxSynchronize());
  MUST(cuMemGetInfo_v2(&available, &total));
  printf("%zu\n", total - available);
  return 0;
}
