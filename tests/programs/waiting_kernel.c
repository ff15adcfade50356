/* A kernel that waits for a word of the host's, as persistent kernels do, beside another stream's short kernels. The host writes the
 * word when these are over.
 *
 *   kernel_us=100  count=50  rounds=1
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t count = option("count", 50), rounds = option("rounds", 1);
  kernel work = kernel_of(option("kernel_us", 100)), wait = meeting_of(0);
  stream waiting = new_stream(), own = new_stream();
  volatile uint32_t *words = shared_words();
  wait_to_begin();
  for (uint32_t round = 1; round <= rounds; round++) {
    launch_meeting(wait, words, words + 16, round, waiting);
    for (uint64_t i = 0; i < count; i++) launch(work, own);
    CHECK(cuStreamSynchronize(own));
    words[16] = round;
    CHECK(cuStreamSynchronize(waiting));
  }
  finish();
  return 0;
}
