/* Eager training: each step copies a batch to the card, launches many kernels of a few lengths one by one, and reads the loss back.
 *
 *   steps=40  kernels=200
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#define BATCH (4 * MIB)

static const uint64_t lengths_us[] = {5, 10, 20, 50, 100, 200};
enum { LENGTHS = sizeof lengths_us / sizeof *lengths_us };

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t steps = option("steps", 40), kernels = option("kernels", 200), device;
  void *batch;
  float loss;
  kernel of_length[LENGTHS];
  stream own = new_stream();
  for (int i = 0; i < LENGTHS; i++) of_length[i] = kernel_of(lengths_us[i]);
  CHECK(cuMemAlloc_v2(&device, BATCH));
  CHECK(cuMemHostAlloc(&batch, BATCH, 0));
  wait_to_begin();
  for (; steps; steps--) {
    CHECK(cuMemcpyHtoDAsync_v2(device, batch, BATCH, own));
    for (uint64_t i = 0; i < kernels; i++) launch(of_length[i % LENGTHS], own);
    CHECK(cuMemcpyDtoHAsync_v2(&loss, device, sizeof loss, own));
    CHECK(cuStreamSynchronize(own));
  }
  finish();
  return 0;
}
