/* A language model that generates: each token is some kernels a layer, one by one or as a graph, and is read back before the next.
 *
 *   tokens=100  layers=32
 *   graph=0              1: a token's kernels are a graph
 * SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

static const uint64_t lengths_us[] = {10, 40, 15, 5, 50, 30};
enum { A_LAYER = sizeof lengths_us / sizeof *lengths_us };

static kernel kernels[A_LAYER];
static uint64_t layers;

static void launch_token(stream own) {
  for (uint64_t layer = 0; layer < layers; layer++)
    for (int i = 0; i < A_LAYER; i++) launch(kernels[i], own);
}

static graph capture(stream own) {
  graph template, made;
  CHECK(cuStreamBeginCapture_v2(own, CAPTURE_RELAXED));
  launch_token(own);
  CHECK(cuStreamEndCapture(own, &template));
  CHECK(cuGraphInstantiateWithFlags(&made, template, 0));
  return made;
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t tokens = option("tokens", 100), device;
  uint32_t token;
  stream own = new_stream();
  layers = option("layers", 32);
  for (int i = 0; i < A_LAYER; i++) kernels[i] = kernel_of(lengths_us[i]);
  CHECK(cuMemAlloc_v2(&device, MIB));
  graph whole = option("graph", 0) ? capture(own) : NULL;
  wait_to_begin();
  for (; tokens; tokens--) {
    if (whole) CHECK(cuGraphLaunch(whole, own));
    else launch_token(own);
    CHECK(cuMemcpyDtoHAsync_v2(&token, device, sizeof token, own));
    CHECK(cuStreamSynchronize(own));
  }
  finish();
  return 0;
}
