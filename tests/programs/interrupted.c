/* A stream in which something that takes no time of the card comes between two kernels, again and again; it is submitted at once.
 *
 *   by=host              the host function that it calls; event: another stream's event that it waits for
 *   kernel_us=1000  pause_ms=200  rounds=4
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "program.h"

#define WARM_UP 20

static void pause_by_event(stream own, stream other, event over, uint64_t *pause_ms) {
  CHECK(cuLaunchHostFunc(other, nap, pause_ms));
  CHECK(cuEventRecord(over, other));
  CHECK(cuStreamWaitEvent(own, over, 0));
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t pause_ms = option("pause_ms", 200), rounds = option("rounds", 4);
  int by_event = !strcmp(text_option("by", "host"), "event");
  kernel work = kernel_of(option("kernel_us", 1000));
  stream own = new_stream(), other = new_stream();
  event over = new_event(NO_TIMING);
  for (int i = 0; i < WARM_UP; i++) launch(work, own);
  CHECK(cuStreamSynchronize(own));
  wait_to_begin();
  for (; rounds; rounds--) {
    launch(work, own);
    if (by_event) pause_by_event(own, other, over, &pause_ms);
    else CHECK(cuLaunchHostFunc(own, nap, &pause_ms));
    launch(work, own);
  }
  CHECK(cuStreamSynchronize(own));
  finish();
  return 0;
}
