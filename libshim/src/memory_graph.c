/* Hooks of graphs that may have memory nodes: where such a node is made, where a graph becomes executable, where memory
 * comes, and where it goes. As long as the process has made no memory node, each is a load and a branch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"
#include "location.h"
#include "memory.h"
#include "stream.h"

/* ---- nodes ---- */

static CUresult note(CUresult result, const CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (result == CUDA_SUCCESS) aq_graph_memory_seen(aq_location_device(params->props.location));
  return result;
}

static CUresult note_any(CUresult result, const CUgraphNodeParams *params) {
  return result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? note(result, &params->of.alloc) : result;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (!AQ_CUDA(cuGraphAddMemAllocNode)) return CUDA_ERROR_NOT_FOUND;
  return note(AQ_CUDA(cuGraphAddMemAllocNode)(node, graph, needs, count, params), params);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, CUgraphNodeParams *params) {
  if (!AQ_CUDA(cuGraphAddNode)) return CUDA_ERROR_NOT_FOUND;
  return note_any(AQ_CUDA(cuGraphAddNode)(node, graph, needs, count, params), params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const void *edges, size_t count,
                           CUgraphNodeParams *params) {
  if (!AQ_CUDA(cuGraphAddNode_v2)) return CUDA_ERROR_NOT_FOUND;
  return note_any(AQ_CUDA(cuGraphAddNode_v2)(node, graph, needs, edges, count, params), params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const void *edges, size_t count,
                           CUgraphNodeParams *params) {
  if (!AQ_CUDA(cuGraphAddNode_v3)) return CUDA_ERROR_NOT_FOUND;
  return note_any(AQ_CUDA(cuGraphAddNode_v3)(node, graph, needs, edges, count, params), params);
}

/* ---- executable graphs ---- */

static CUresult keep(CUresult result, const CUgraphExec *exec, CUgraph graph) {
  if (result == CUDA_SUCCESS && aq_graph_memory_any()) aq_graph_memory_keep(*exec, aq_graph_needs_of(graph));
  return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
  if (!AQ_CUDA(cuGraphInstantiate)) return CUDA_ERROR_NOT_FOUND;
  return keep(AQ_CUDA(cuGraphInstantiate)(exec, graph, error, log, size), exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
  if (!AQ_CUDA(cuGraphInstantiate_v2)) return CUDA_ERROR_NOT_FOUND;
  return keep(AQ_CUDA(cuGraphInstantiate_v2)(exec, graph, error, log, size), exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  if (!AQ_CUDA(cuGraphInstantiateWithFlags)) return CUDA_ERROR_NOT_FOUND;
  return keep(AQ_CUDA(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph);
}

typedef struct {
  CUresult (*driver)(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
  CUgraphExec *exec;
  CUgraph graph;
  CUDA_GRAPH_INSTANTIATE_PARAMS *params;
  int flavour;
} instantiation;

static CUresult instantiate(void *data) {
  const instantiation *one = data;
  return one->driver(one->exec, one->graph, one->params);
}

/* Uploads at once: what the graph needs must fit. */
static CUresult instantiate_with_params(instantiation *one) {
  if (!one->driver) return CUDA_ERROR_NOT_FOUND;
  bool uploads = one->params && one->params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  aq_graph_needs *needs = aq_graph_memory_any() ? aq_graph_needs_of(one->graph) : NULL;
  if (!needs) return instantiate(one);
  CUstream stream = uploads ? aq_stream_named(one->params->upload, one->flavour) : NULL;
  CUresult result = uploads ? aq_graph_memory_call_with(instantiate, one, needs, stream) : instantiate(one);
  if (result == CUDA_SUCCESS) {
    aq_graph_memory_keep(*one->exec, needs);
    return result;
  }
  if (uploads && result == CUDA_ERROR_OUT_OF_MEMORY) one->params->result = CUDA_GRAPH_INSTANTIATE_ERROR;
  aq_graph_needs_free(needs);
  return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_with_params(
      &(instantiation){AQ_CUDA(cuGraphInstantiateWithParams), exec, graph, params, AQ_STREAM_LEGACY});
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return instantiate_with_params(
      &(instantiation){AQ_CUDA(cuGraphInstantiateWithParams_ptsz), exec, graph, params, AQ_STREAM_PER_THREAD});
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, int *verdict) {
  if (!AQ_CUDA(cuGraphExecUpdate)) return CUDA_ERROR_NOT_FOUND;
  return keep(AQ_CUDA(cuGraphExecUpdate)(exec, graph, error, verdict), &exec, graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info) {
  if (!AQ_CUDA(cuGraphExecUpdate_v2)) return CUDA_ERROR_NOT_FOUND;
  return keep(AQ_CUDA(cuGraphExecUpdate_v2)(exec, graph, info), &exec, graph);
}

/* ---- where memory comes ---- */

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  if (!AQ_CUDA(cuGraphUpload)) return CUDA_ERROR_NOT_FOUND;
  if (!aq_graph_memory_any()) return AQ_CUDA(cuGraphUpload)(exec, stream);
  return aq_graph_memory_call(AQ_CUDA(cuGraphUpload), exec, stream, AQ_STREAM_LEGACY);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  if (!AQ_CUDA(cuGraphUpload_ptsz)) return CUDA_ERROR_NOT_FOUND;
  if (!aq_graph_memory_any()) return AQ_CUDA(cuGraphUpload_ptsz)(exec, stream);
  return aq_graph_memory_call(AQ_CUDA(cuGraphUpload_ptsz), exec, stream, AQ_STREAM_PER_THREAD);
}

/* ---- where it goes ---- */

static CUresult settle(CUresult result) {
  if (aq_graph_memory_any()) aq_pools_settle();
  return result;
}

/* Forgotten before the driver ends it: another thread may be given the same handle as soon as it has. */
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (!AQ_CUDA(cuGraphExecDestroy)) return CUDA_ERROR_NOT_FOUND;
  if (aq_graph_memory_any()) aq_graph_memory_keep(exec, NULL);
  return settle(AQ_CUDA(cuGraphExecDestroy)(exec));
}

CUresult cuGraphDestroy(CUgraph graph) {
  return AQ_CUDA(cuGraphDestroy) ? settle(AQ_CUDA(cuGraphDestroy)(graph)) : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return AQ_CUDA(cuDeviceGraphMemTrim) ? settle(AQ_CUDA(cuDeviceGraphMemTrim)(device)) : CUDA_ERROR_NOT_FOUND;
}
