/* A ring of channels beside computation, as NCCL's within a card: in each round every channel waits for the one before it, and for what
 * is computed; what is computed next waits for the last channel of the round before.
 *
 *   channels=4  hop_us=100  compute_us=2000  rounds=200
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#define MAX_CHANNELS 16

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t channels = option("channels", 4), rounds = option("rounds", 200);
  kernel hop = kernel_of(option("hop_us", 100)), compute = kernel_of(option("compute_us", 2000));
  stream own[MAX_CHANNELS], computing = new_stream();
  event passed[MAX_CHANNELS], computed = new_event(NO_TIMING);
  if (channels > MAX_CHANNELS) fail("too many channels", MAX_CHANNELS);
  for (uint64_t i = 0; i < channels; i++) own[i] = new_stream(), passed[i] = new_event(NO_TIMING);
  wait_to_begin();
  for (uint64_t round = 0; round < rounds; round++) {
    if (round) CHECK(cuStreamWaitEvent(computing, passed[channels - 1], 0));
    CHECK(cuEventRecord(computed, computing));
    launch(compute, computing);
    for (uint64_t i = 0; i < channels; i++) {
      CHECK(cuStreamWaitEvent(own[i], i ? passed[i - 1] : computed, 0));
      launch(hop, own[i]);
      CHECK(cuEventRecord(passed[i], own[i]));
    }
    if (round % 10 == 9) CHECK(cuCtxSynchronize());
  }
  CHECK(cuCtxSynchronize());
  finish();
  return 0;
}
