/* Threads capture graphs with memory while another ends contexts whose memory it has not freed, so that addresses are given
 * out again at once, and one more waits for its stream again and again. Every call must succeed.
 *
 *   capture_race SECONDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "driver.h"

#define BLOCK (2 << 20)
#define BLOCKS 8
#define THREAD_LOCAL 1

#define FUNCTIONS(F)                                                                                                  \
  F(cuInit, (unsigned)) F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxSetCurrent, (void *))                       \
  F(cuCtxCreate_v2, (void **, unsigned, int)) F(cuCtxDestroy_v2, (void *)) F(cuMemAlloc_v2, (uint64_t *, size_t))      \
  F(cuStreamCreate, (void **, unsigned)) F(cuStreamSynchronize, (void *)) F(cuStreamBeginCapture_v2, (void *, int))    \
  F(cuStreamEndCapture, (void *, void **)) F(cuMemAllocAsync, (uint64_t *, size_t, void *))                            \
  F(cuMemFreeAsync, (uint64_t, void *)) F(cuGraphDestroy, (void *))

FUNCTIONS(DECLARE)

static void *primary;
static time_t until;

static bool goes_on(void) { return time(NULL) < until; }

static void *new_stream(void) {
  void *stream;
  MUST(cuCtxSetCurrent(primary));
  MUST(cuStreamCreate(&stream, 1));
  return stream;
}

static void *capture(void *unused) {
  void *stream = new_stream(), *graph;
  while (goes_on()) {
    uint64_t memory[BLOCKS];
    MUST(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    for (int i = 0; i < BLOCKS; i++) MUST(cuMemAllocAsync(&memory[i], BLOCK, stream));
    for (int i = 0; i < BLOCKS; i++) MUST(cuMemFreeAsync(memory[i], stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
  }
  return unused;
}

static void *end_contexts(void *unused) {
  while (goes_on()) {
    void *context;
    uint64_t memory;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < BLOCKS; i++) MUST(cuMemAlloc_v2(&memory, BLOCK));
    MUST(cuCtxDestroy_v2(context));
  }
  return unused;
}

static void *synchronize(void *unused) {
  void *stream = new_stream();
  while (goes_on()) MUST(cuStreamSynchronize(stream));
  return unused;
}

int main(int argc, char **argv) {
  static void *(*const acts[])(void *) = {capture, capture, end_contexts, synchronize};
  pthread_t threads[4];
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || argc < 2) return 2;
  FUNCTIONS(LOOK_UP)
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  until = time(NULL) + atoi(argv[1]);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, acts[i], NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  return 0;
}
