/* A server with instances of a model, as Triton's: each is a thread with a stream, and answers one request after the other.
 *
 *   instances=8  requests=60  kernels=6  kernel_us=500
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "program.h"

#define MAX_INSTANCES 16
#define REQUEST (64 << 10)

static kernel work;
static uint64_t requests, kernels;
static pthread_barrier_t ready, begun;

static void answer(stream own, uint64_t device, void *host) {
  CHECK(cuMemcpyHtoDAsync_v2(device, host, REQUEST, own));
  for (uint64_t i = 0; i < kernels; i++) launch(work, own);
  CHECK(cuMemcpyDtoHAsync_v2(host, device, REQUEST, own));
  CHECK(cuStreamSynchronize(own));
}

static void *instance(void *none) {
  uint64_t device;
  void *host;
  join_context();
  stream own = new_stream();
  CHECK(cuMemAlloc_v2(&device, REQUEST));
  CHECK(cuMemHostAlloc(&host, REQUEST, 0));
  pthread_barrier_wait(&ready);
  pthread_barrier_wait(&begun);
  for (uint64_t i = 0; i < requests; i++) answer(own, device, host);
  return none;
}

int main(int argc, char **argv) {
  static pthread_t threads[MAX_INSTANCES];
  start(argc, argv);
  unsigned instances = (unsigned)option("instances", 8);
  if (instances > MAX_INSTANCES) fail("too many instances", MAX_INSTANCES);
  requests = option("requests", 60), kernels = option("kernels", 6), work = kernel_of(option("kernel_us", 500));
  pthread_barrier_init(&ready, NULL, instances + 1);
  pthread_barrier_init(&begun, NULL, instances + 1);
  for (unsigned i = 0; i < instances; i++)
    if (pthread_create(&threads[i], NULL, instance, NULL)) fail("pthread_create", 1);
  pthread_barrier_wait(&ready);
  wait_to_begin();
  pthread_barrier_wait(&begun);
  for (unsigned i = 0; i < instances; i++) pthread_join(threads[i], NULL);
  finish();
  return 0;
}
