/* An autotuner: it times each of some kernels by events, several launches at a time, and averages.
 *
 *   candidates=20  launches=10  repeats=3
 * It tells the sum of the averages, "event_ms".
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#define LEAST_US 50

static float timed(kernel which, uint64_t launches, stream own, event from, event to) {
  float ms;
  CHECK(cuEventRecord(from, own));
  for (uint64_t i = 0; i < launches; i++) launch(which, own);
  CHECK(cuEventRecord(to, own));
  CHECK(cuEventSynchronize(to));
  CHECK(cuEventElapsedTime(&ms, from, to));
  return ms / (float)launches;
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t candidates = option("candidates", 20), launches = option("launches", 10), repeats = option("repeats", 3);
  event from = new_event(TIMING), to = new_event(TIMING);
  stream own = new_stream();
  float sum = 0;
  for (uint64_t i = 0; i < candidates; i++) kernel_of(LEAST_US * (i + 1));
  wait_to_begin();
  for (uint64_t i = 0; i < candidates; i++) {
    kernel one = kernel_of(LEAST_US * (i + 1));
    timed(one, launches, own, from, to); /* to warm up */
    for (uint64_t repeat = 0; repeat < repeats; repeat++) sum += timed(one, launches, own, from, to) / (float)repeats;
  }
  tell("event_ms", sum);
  finish();
  return 0;
}
