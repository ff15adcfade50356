/* Memory nodes of graphs. Their addresses are there from the start; memory comes from what the device holds for graphs when
 * a graph is launched or uploaded, and stays there until that is trimmed. Graphs launched into one stream share it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_GRAPH_MEMORY_H
#define AQ_GRAPH_MEMORY_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Whether this process has ever made a memory node; relaxed: whoever launches a graph was told of it by its maker. */
extern bool aq_graph_memory_exists __attribute__((visibility("hidden")));

static inline bool aq_graph_memory_any(void) {
  return __builtin_expect(__atomic_load_n(&aq_graph_memory_exists, __ATOMIC_RELAXED), 0);
}

/* A memory node was made for a device. */
void aq_graph_memory_seen(CUdevice device);

/* What a graph will need when it is launched, by devices. NULL: nothing, or the process has no memory left. */
typedef struct aq_graph_needs aq_graph_needs;
aq_graph_needs *aq_graph_needs_of(CUgraph graph);
void aq_graph_needs_free(aq_graph_needs *needs);

/* Remembers what an executable graph needs, instead of what it did; takes `needs` over. */
void aq_graph_memory_keep(CUgraphExec exec, aq_graph_needs *needs);

/* Calls the driver with an executable graph and a stream (of a flavour, AQ_STREAM_…), having charged what it may need. */
CUresult aq_graph_memory_call(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, int flavour);

/* The same of an instantiation that uploads at once; `stream` by a name of both flavours (stream.h). */
CUresult aq_graph_memory_call_with(CUresult (*driver)(void *), void *arguments, const aq_graph_needs *needs, CUstream stream);

/* Bytes that graphs have which were launched and have not run yet. None where graphs leave memory behind: no telling how much
 * of it comes back. */
uint64_t aq_graph_memory_pending(void);

/* In the child of a fork. */
void aq_graph_memory_forget(void);

#endif
