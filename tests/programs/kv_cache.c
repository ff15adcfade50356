/* How vLLM begins: it loads weights, takes what a step needs at its peak and gives that back, asks how much is free, and fills what
 * is left of nine tenths of the memory with blocks of its cache. Then it generates.
 *
 *   weights_mib=2048  peak_mib=1024  block_mib=64  steps=100  step_us=5000
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#define TENTHS 9
#define A_LAYER 64 /* MiB */

static uint64_t take(uint64_t mib) {
  uint64_t made;
  CHECK(cuMemAlloc_v2(&made, mib * MIB));
  return made;
}

/* Takes what is left to take; returns how much. */
static size_t fill(size_t block) {
  size_t available, total, taken = 0;
  CHECK(cuMemGetInfo_v2(&available, &total));
  size_t most = total / 10 * TENTHS, used = total - available;
  for (; used + taken + block <= most; taken += block) take(block / MIB);
  return taken;
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t weights = option("weights_mib", 2048), steps = option("steps", 100);
  kernel step = kernel_of(option("step_us", 5000));
  stream own = new_stream();
  wait_to_begin();
  for (uint64_t loaded = 0; loaded < weights; loaded += A_LAYER) take(A_LAYER);
  uint64_t peak = take(option("peak_mib", 1024));
  launch(step, own);
  CHECK(cuStreamSynchronize(own));
  CHECK(cuMemFree_v2(peak));
  tell("cache_mib", (double)(fill(option("block_mib", 64) * MIB) / MIB));
  for (; steps; steps--) {
    launch(step, own);
    CHECK(cuStreamSynchronize(own));
  }
  finish();
  return 0;
}
