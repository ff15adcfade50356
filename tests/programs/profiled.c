/* A program that is watched kernel by kernel: each is between two events, and a callback of its stream says that it is over.
 *
 *   kernels=500  kernel_us=200  together=10
 * It tells the sum of what the events measured, "event_ms".
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "program.h"

#define MAX_TOGETHER 64

static atomic_uint over;

static void count(stream where, int status, void *data) {
  (void)where, (void)status, (void)data;
  atomic_fetch_add(&over, 1);
}

static void launch_watched(kernel work, stream own, const event *around) {
  CHECK(cuEventRecord(around[0], own));
  launch(work, own);
  CHECK(cuEventRecord(around[1], own));
  CHECK(cuStreamAddCallback(own, count, NULL, 0));
}

int main(int argc, char **argv) {
  static event around[MAX_TOGETHER][2];
  start(argc, argv);
  uint64_t kernels = option("kernels", 500), together = option("together", 10);
  kernel work = kernel_of(option("kernel_us", 200));
  stream own = new_stream();
  float sum = 0, ms;
  if (together > MAX_TOGETHER) fail("too many together", MAX_TOGETHER);
  for (uint64_t i = 0; i < together; i++) around[i][0] = new_event(TIMING), around[i][1] = new_event(TIMING);
  wait_to_begin();
  for (uint64_t done = 0; done < kernels; done += together) {
    for (uint64_t i = 0; i < together; i++) launch_watched(work, own, around[i]);
    CHECK(cuStreamSynchronize(own));
    for (uint64_t i = 0; i < together; i++, sum += ms) CHECK(cuEventElapsedTime(&ms, around[i][0], around[i][1]));
  }
  if (atomic_load(&over) < kernels) fail("callbacks", (int)atomic_load(&over));
  tell("event_ms", sum);
  finish();
  return 0;
}
