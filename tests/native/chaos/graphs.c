/* Graphs with memory nodes: captured, or made node by node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

static uint64_t captured(actor *a, size_t bytes) {
  uint64_t memory, graph;
  MUST(cuStreamBeginCapture_v2(a->stream, 1));
  MUST(cuMemAllocAsync(&memory, bytes, a->stream));
  MUST(cuMemFreeAsync(memory, a->stream));
  MUST(cuStreamEndCapture(a->stream, &graph));
  return graph;
}

/* Two allocations, one after the other or both at once. */
static uint64_t made_of_nodes(actor *a, size_t bytes) {
  uint64_t graph;
  void *first, *second, *end;
  node_wanted one = {.from = device_memory, .bytes = bytes}, two = {.from = device_memory, .bytes = 1 + bytes / 2};
  bool together = dice(a, 2);
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddMemAllocNode(&first, graph, NULL, 0, &one));
  if (together) MUST(cuGraphAddMemAllocNode(&second, graph, &first, 1, &two));
  MUST(cuGraphAddMemFreeNode(&end, graph, together ? &second : &first, 1, one.address));
  if (!together) MUST(cuGraphAddMemAllocNode(&second, graph, &end, 1, &two));
  MUST(cuGraphAddMemFreeNode(&end, graph, together ? &end : &second, 1, two.address));
  return graph;
}

void give_graph(const object *o) {
  MUST(cuGraphExecDestroy(o->other));
  MUST(cuGraphDestroy(o->value));
}

static void start(actor *a, object *o, uint64_t graph) {
  object made = {.kind = GRAPH, .value = graph};
  MUST(cuGraphInstantiateWithFlags(&made.other, graph, 0));
  bool begun = dice(a, 4) ? FITS(cuGraphLaunch(made.other, a->stream)) : FITS(cuGraphUpload(made.other, a->stream));
  if (begun) *o = made;
  else give_graph(&made);
}

void take_captured(actor *a, object *o) { start(a, o, captured(a, any_size(a))); }
void take_graph(actor *a, object *o) { start(a, o, made_of_nodes(a, any_size(a))); }

void relaunch(actor *a) {
  const object *o = &a->objects[dice(a, LIVE)];
  if (o->kind == GRAPH) FITS(cuGraphLaunch(o->other, a->stream));
}
