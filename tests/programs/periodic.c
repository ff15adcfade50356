/* A control loop: a kernel so long after the launch of the last one has returned, whether that one has run or not. The loop polls the
 * clock; what it loses to other programs between two launches it makes up for, what a launch takes it does not.
 *
 *   kernel_us=10  period_us=100  count=10000
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t period_ns = 1000 * option("period_us", 100), count = option("count", 10000);
  kernel work = kernel_of(option("kernel_us", 10));
  stream own = new_stream();
  wait_to_begin();
  for (uint64_t i = 0, next_ns = now_ns(); i < count; i++) {
    while (now_ns() < next_ns) continue;
    uint64_t before_ns = now_ns();
    launch(work, own);
    next_ns += period_ns + now_ns() - before_ns;
  }
  CHECK(cuStreamSynchronize(own));
  finish();
  return 0;
}
