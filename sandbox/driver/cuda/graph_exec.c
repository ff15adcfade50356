/* Executable graphs: a copy of the graph in an order that its edges allow. */
#include <stdlib.h>

#include "capture.h"
#include "event.h"
#include "graph_memory.h"
#include "handle.h"
#include "launch.h"
#include "stream.h"

struct exec {
    CUgraphExec handle;
    struct sim_graph *graph; /* its own copy */
    struct sim_node_set order;
    uint64_t flags;
    bool claimed; /* it has its memory for itself */
};

struct instantiate_params {
    uint64_t flags;
    CUstream upload;
    CUgraphNode error;
    int result;
};

enum { INSTANTIATE_FLAGS = 15, AUTO_FREE = 1, UPLOAD = 2, INVALID_STRUCTURE = 2 };

/* ---- order ---- */

static bool ready(const struct sim_node *node, const struct sim_node_set *before)
{
    for (size_t i = 0; i < node->needs.count; i++)
        if (!sim_nodes_has(before, node->needs.nodes[i]))
            return false;
    return true;
}

/* One pass is enough for nodes added after what they need; edges added later may take more. False: there is a cycle. */
static bool sort(const struct sim_graph *graph, struct sim_node_set *order)
{
    size_t before;
    do {
        before = order->count;
        for (size_t i = 0; i < graph->nodes.count; i++)
            if (!sim_nodes_has(order, graph->nodes.nodes[i]) && ready(graph->nodes.nodes[i], order) &&
                !sim_nodes_add(order, graph->nodes.nodes[i]))
                return false;
    } while (order->count > before && order->count < graph->nodes.count);
    return order->count == graph->nodes.count;
}

/* ---- making ---- */

static void free_exec(struct exec *exec)
{
    sim_nodes_clear(&exec->order);
    if (exec->claimed)
        sim_graph_memory_unclaim(exec->graph);
    if (exec->graph != NULL)
        sim_graph_free(exec->graph);
    free(exec);
}

static CUresult make(const struct sim_graph *graph, uint64_t flags, struct exec **out)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    exec->graph = sim_graph_copy(graph);
    if (exec->graph == NULL) {
        free_exec(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sort(exec->graph, &exec->order)) {
        free_exec(exec);
        return CUDA_ERROR_INVALID_VALUE;
    }
    exec->handle = sim_handle_new(SIM_GRAPH_EXEC, exec);
    *out = exec;
    return CUDA_SUCCESS;
}

static void end_exec(struct exec *exec)
{
    sim_handle_end(exec->handle, SIM_GRAPH_EXEC);
    free_exec(exec);
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, uint64_t flags)
{
    struct exec *exec;
    SIM_NEED_INIT();
    const struct sim_graph *graph = sim_handle_get(handle, SIM_GRAPH);
    if (out == NULL || graph == NULL || (flags & ~(uint64_t)INSTANTIATE_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make(graph, flags, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_graph_memory_claim(exec->graph);
    exec->claimed = result == CUDA_SUCCESS;
    if (exec->claimed)
        *out = exec->handle;
    else
        end_exec(exec);
    return result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle);

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    return instantiate(out, graph, flags);
}

SIM_API CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    (void)error;
    if (log != NULL && size > 0)
        log[0] = '\0';
    return instantiate(out, graph, 0);
}

SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    return cuGraphInstantiate(out, graph, error, log, size);
}

SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, struct instantiate_params *params)
{
    SIM_NEED_INIT();
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(out, graph, params->flags);
    if (result == CUDA_SUCCESS && (params->flags & UPLOAD) != 0)
        result = cuGraphUpload(*out, params->upload);
    params->error = NULL;
    params->result = result == CUDA_SUCCESS ? 0 : INVALID_STRUCTURE;
    return result;
}

#define NEED_EXEC(handle, name)                                      \
    SIM_NEED_INIT();                                                 \
    struct exec *name = sim_handle_get(handle, SIM_GRAPH_EXEC);      \
    if ((name) == NULL)                                              \
        return CUDA_ERROR_INVALID_VALUE

SIM_API CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    NEED_EXEC(handle, exec);
    if (sim_handle_end(handle, SIM_GRAPH_EXEC) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_device_count(); i++)
        sim_engine_drain(sim_device(i)); /* its memory may be in use */
    free_exec(exec);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags)
{
    NEED_EXEC(handle, exec);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* ---- launching ---- */

static CUresult submit_node(struct sim_stream *stream, const struct sim_node *node)
{
    struct sim_op op = node->op;
    if (op.kind == SIM_OP_KERNEL) {
        CUresult loaded = sim_launch_load(&op.launch, stream->context);
        if (loaded != CUDA_SUCCESS)
            return loaded;
    } else if (op.kind == SIM_OP_RECORD) {
        pthread_mutex_lock(&op.event.event->lock);
        op.event.generation = ++op.event.event->recorded;
        op.event.event->device = stream->context->device;
        pthread_mutex_unlock(&op.event.event->lock);
    } else if (op.kind == SIM_OP_WAIT) {
        return sim_event_make_wait(op.event.event, stream);
    }
    return sim_engine_submit(stream, &op);
}

static CUresult submit_graph(struct sim_stream *stream, const struct sim_node_set *nodes)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < nodes->count && result == CUDA_SUCCESS; i++) {
        struct sim_node_set order = {0};
        const struct sim_graph *child = nodes->nodes[i]->child;
        if (child == NULL)
            result = submit_node(stream, nodes->nodes[i]);
        else if (sort(child, &order))
            result = submit_graph(stream, &order);
        sim_nodes_clear(&order);
    }
    return result;
}

SIM_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    NEED_EXEC(handle, exec);
    SIM_NEED_STREAM(stream_handle, stream);
    CUresult result = sim_capture_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_capture_active(stream))
        return sim_capture_graph(stream, exec->graph);
    struct sim_graph_settlement *settlement;
    result = sim_graph_memory_begin(stream, &exec->order, (exec->flags & AUTO_FREE) != 0, &settlement);
    if (result != CUDA_SUCCESS)
        return result;
    result = submit_graph(stream, &exec->order);
    CUresult ended = sim_graph_memory_end(stream, settlement);
    return result != CUDA_SUCCESS ? result : ended;
}

SIM_API CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    NEED_EXEC(handle, exec);
    SIM_NEED_STREAM(stream_handle, stream);
    return sim_graph_memory_upload(stream, &exec->order);
}

/* ---- updating ---- */

enum { UPDATE_SUCCESS = 0, UPDATE_TOPOLOGY_CHANGED = 2, UPDATE_TYPE_CHANGED = 3, UPDATE_PARAMETERS_CHANGED = 5 };

static int compare(const struct sim_graph *old, const struct sim_graph *new)
{
    if (old->nodes.count != new->nodes.count)
        return UPDATE_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < old->nodes.count; i++) {
        if (old->nodes.nodes[i]->type != new->nodes.nodes[i]->type)
            return UPDATE_TYPE_CHANGED;
        if (old->nodes.nodes[i]->needs.count != new->nodes.nodes[i]->needs.count)
            return UPDATE_TOPOLOGY_CHANGED;
        if (old->nodes.nodes[i]->memory != new->nodes.nodes[i]->memory)
            return UPDATE_PARAMETERS_CHANGED;
    }
    return UPDATE_SUCCESS;
}

/* Takes the parameters of a graph of the same shape. */
static CUresult update(CUgraphExec handle, CUgraph graph_handle, int *verdict)
{
    struct exec *fresh;
    NEED_EXEC(handle, exec);
    const struct sim_graph *graph = sim_handle_get(graph_handle, SIM_GRAPH);
    if (graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *verdict = compare(exec->graph, graph);
    if (*verdict != UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    CUresult result = make(graph, exec->flags, &fresh);
    if (result != CUDA_SUCCESS)
        return result;
    struct exec old = *exec;
    exec->graph = fresh->graph;
    exec->order = fresh->order;
    fresh->graph = old.graph;
    fresh->order = old.order;
    sim_handle_end(fresh->handle, SIM_GRAPH_EXEC);
    free_exec(fresh);
    return CUDA_SUCCESS;
}

struct update_info {
    int result;
    CUgraphNode node, from;
};

SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, struct update_info *info)
{
    int verdict = UPDATE_SUCCESS;
    CUresult result = update(exec, graph, &verdict);
    if (info != NULL)
        *info = (struct update_info){.result = verdict};
    return result;
}

SIM_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *verdict)
{
    int answer = UPDATE_SUCCESS;
    CUresult result = update(exec, graph, &answer);
    if (node != NULL)
        *node = NULL;
    if (verdict != NULL)
        *verdict = answer;
    return result;
}
