/* Weights that do not fit: while a layer is computed the next one is copied to the card, into the other of two buffers.
 *
 *   layers=120  compute_us=4000  layer_mib=2
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

typedef struct {
  uint64_t device;
  event copied, computed;
} buffer;

static buffer new_buffer(size_t bytes) {
  buffer made = {.copied = new_event(NO_TIMING), .computed = new_event(NO_TIMING)};
  CHECK(cuMemAlloc_v2(&made.device, bytes));
  return made;
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t layers = option("layers", 120);
  size_t bytes = option("layer_mib", 2) * MIB;
  kernel compute = kernel_of(option("compute_us", 4000));
  stream copying = new_stream(), computing = new_stream();
  buffer buffers[] = {new_buffer(bytes), new_buffer(bytes)};
  void *weights;
  CHECK(cuMemHostAlloc(&weights, bytes, 0));
  wait_to_begin();
  for (uint64_t layer = 0; layer < layers; layer++) {
    const buffer *one = &buffers[layer % 2];
    if (layer > 1) CHECK(cuStreamWaitEvent(copying, one->computed, 0));
    CHECK(cuMemcpyHtoDAsync_v2(one->device, weights, bytes, copying));
    CHECK(cuEventRecord(one->copied, copying));
    CHECK(cuStreamWaitEvent(computing, one->copied, 0));
    launch(compute, computing);
    CHECK(cuEventRecord(one->computed, computing));
  }
  CHECK(cuStreamSynchronize(computing));
  finish();
  return 0;
}
