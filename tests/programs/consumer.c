/* A pipeline of two streams that meet by a word of memory. What consumes is submitted before what produces.
 *
 *   produce_us=10500  consume_us=10000  rounds=10
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#define EQUAL 1

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t rounds = option("rounds", 10), word;
  kernel made = kernel_of(option("produce_us", 10500)), used = kernel_of(option("consume_us", 10000));
  stream consumer = new_stream(), producer = new_stream();
  CHECK(cuMemAlloc_v2(&word, MIB));
  CHECK(cuMemsetD32_v2(word, 0, 1));
  wait_to_begin();
  for (uint32_t round = 1; round <= rounds; round++) {
    CHECK(cuStreamWaitValue32(consumer, word, round, EQUAL));
    launch(used, consumer);
    launch(made, producer);
    CHECK(cuStreamWriteValue32(producer, word, round, 0));
    CHECK(cuStreamSynchronize(consumer));
  }
  finish();
  return 0;
}
