/* A pool of managed memory, as RAPIDS' has it: taken and brought to the card at the start, and divided by the program itself. Queries
 * use parts of it from two streams.
 *
 *   pool_mib=512  part_mib=64  queries=100  kernels=5  kernel_us=1000
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t queries = option("queries", 100), kernels = option("kernels", 5), pool;
  size_t bytes = option("pool_mib", 512) * MIB, part = option("part_mib", 64) * MIB;
  kernel scan = using_of(option("kernel_us", 1000));
  stream own[] = {new_stream(), new_stream()};
  wait_to_begin();
  CHECK(cuMemAllocManaged(&pool, bytes, ATTACH_GLOBAL));
  CHECK(cuMemPrefetchAsync(pool, bytes, 0, own[0]));
  CHECK(cuStreamSynchronize(own[0]));
  for (uint64_t i = 0; i < queries; i++) {
    for (uint64_t j = 0; j < 2 * kernels; j++) launch_using(scan, pool + (i + j) * part % bytes, part, own[j % 2]);
    CHECK(cuStreamSynchronize(own[0]));
    CHECK(cuStreamSynchronize(own[1]));
  }
  finish();
  return 0;
}
