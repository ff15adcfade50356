/* The entries that build graphs: making, adding nodes, asking, changing. */
#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "graph_memory.h"
#include "handle.h"
#include "launch.h"
#include "transfer.h"

/* What kernel nodes are described by; older callers know the members before `kernel`. */
struct kernel_params {
    CUfunction function;
    unsigned int grid[3], block[3], shared;
    void **params, **extra;
    CUkernel kernel;
    CUcontext context;
};

struct memset_params {
    CUdeviceptr target;
    size_t pitch;
    unsigned int value, element;
    size_t width, height;
};

struct host_params {
    CUhostFn run;
    void *data;
};

#define NEED_GRAPH(handle, name)                                 \
    SIM_NEED_INIT();                                             \
    struct sim_graph *name = sim_handle_get(handle, SIM_GRAPH);  \
    if ((name) == NULL)                                          \
        return CUDA_ERROR_INVALID_VALUE

#define NEED_NODE(handle, name)                                      \
    SIM_NEED_INIT();                                                 \
    struct sim_node *name = sim_handle_get(handle, SIM_GRAPH_NODE);  \
    if ((name) == NULL)                                              \
        return CUDA_ERROR_INVALID_VALUE

SIM_API CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    SIM_NEED_INIT();
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *graph = sim_graph_new();
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = graph->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphDestroy(CUgraph handle)
{
    NEED_GRAPH(handle, graph);
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphClone(CUgraph *out, CUgraph handle)
{
    NEED_GRAPH(handle, graph);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_graph *copy = sim_graph_copy(graph);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = copy->handle;
    return CUDA_SUCCESS;
}

/* ---- adding nodes ---- */

/* Where a new node goes. */
struct spot {
    CUgraphNode *out;
    CUgraph graph;
    const CUgraphNode *needs;
    size_t count;
};

static CUresult add(struct spot spot, enum sim_node_type type, const struct sim_op *op, struct sim_node **out)
{
    struct sim_node_set needs = {0};
    struct sim_node *node = NULL;
    NEED_GRAPH(spot.graph, graph);
    if (spot.out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_nodes_read(&needs, graph, spot.needs, spot.count);
    if (result == CUDA_SUCCESS) {
        node = sim_graph_add(graph, type, op, &needs);
        result = node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    sim_nodes_clear(&needs);
    if (node != NULL)
        *spot.out = node->handle;
    if (out != NULL)
        *out = node;
    return result;
}

static CUresult kernel_op(const struct kernel_params *params, CUkernel kernel, struct sim_op *op)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    op->kind = SIM_OP_KERNEL;
    void *function = params->function != NULL ? (void *)params->function : (void *)kernel;
    return sim_launch_make(function, params->grid, params->block, params->shared, params->params, params->extra, &op->launch);
}

static CUresult add_kernel(struct spot spot, const struct kernel_params *params, CUkernel kernel)
{
    struct sim_op op = {0};
    SIM_NEED_INIT();
    CUresult result = kernel_op(params, kernel, &op);
    return result == CUDA_SUCCESS ? add(spot, SIM_NODE_KERNEL, &op, NULL) : result;
}

SIM_API CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                      const struct kernel_params *params)
{
    return add_kernel((struct spot){out, graph, needs, count}, params, NULL);
}

SIM_API CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                         const struct kernel_params *params)
{
    return add_kernel((struct spot){out, graph, needs, count}, params, params == NULL ? NULL : params->kernel);
}

SIM_API CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                      const CUDA_MEMCPY3D *box, CUcontext context)
{
    struct sim_op op = {.kind = SIM_OP_COPY};
    (void)context;
    SIM_NEED_INIT();
    CUresult result = box == NULL ? CUDA_ERROR_INVALID_VALUE : sim_box_make(box, &op.copy);
    return result == CUDA_SUCCESS ? add((struct spot){out, graph, needs, count}, SIM_NODE_MEMCPY, &op, NULL) : result;
}

SIM_API CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                      const struct memset_params *set, CUcontext context)
{
    (void)context;
    SIM_NEED_INIT();
    if (set == NULL || (set->element != 1 && set->element != 2 && set->element != 4) || set->height == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_range_is_device(set->target, (set->height - 1) * set->pitch + set->width * set->element))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = SIM_OP_SET, .set = {(char *)set->target, set->value, set->element, set->pitch, set->width,
                                                    set->height}};
    return add((struct spot){out, graph, needs, count}, SIM_NODE_MEMSET, &op, NULL);
}

SIM_API CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                    const struct host_params *host)
{
    SIM_NEED_INIT();
    if (host == NULL || host->run == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = SIM_OP_HOST, .host = {.run = host->run, .data = host->data}};
    return add((struct spot){out, graph, needs, count}, SIM_NODE_HOST, &op, NULL);
}

SIM_API CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    return add((struct spot){out, graph, needs, count}, SIM_NODE_EMPTY, &(struct sim_op){.kind = SIM_OP_EMPTY}, NULL);
}

SIM_API CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, CUgraph child)
{
    struct sim_node *node;
    NEED_GRAPH(child, original);
    if (sim_graph_has_memory(original))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_graph *copy = sim_graph_copy(original);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_op op = {.kind = SIM_OP_EMPTY};
    CUresult result = add((struct spot){out, graph, needs, count}, SIM_NODE_GRAPH, &op, &node);
    if (result == CUDA_SUCCESS)
        node->child = copy;
    else
        sim_graph_free(copy);
    return result;
}

static CUresult add_event(struct spot spot, CUevent handle, enum sim_node_type type)
{
    SIM_NEED_INIT();
    struct sim_event *event = sim_handle_get(handle, SIM_EVENT);
    if (event == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_op op = {.kind = type == SIM_NODE_EVENT_RECORD ? SIM_OP_RECORD : SIM_OP_WAIT, .event = {event, 0}};
    return add(spot, type, &op, NULL);
}

SIM_API CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, CUevent event)
{
    return add_event((struct spot){out, graph, needs, count}, event, SIM_NODE_EVENT_RECORD);
}

SIM_API CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, CUevent event)
{
    return add_event((struct spot){out, graph, needs, count}, event, SIM_NODE_WAIT_EVENT);
}

/* ---- memory nodes ---- */

struct alloc_params {
    CUmemPoolProps props;
    const CUmemAccessDesc *access;
    size_t access_count, size;
    CUdeviceptr address; /* the answer */
};

SIM_API CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                        struct alloc_params *params)
{
    struct sim_node *node;
    SIM_NEED_INIT();
    struct sim_device *device = params == NULL ? NULL : sim_device_at(params->props.location);
    if (device == NULL || params->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph_memory *memory = sim_graph_memory_new(device, params->size);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->props = params->props;
    struct sim_op op = {.kind = SIM_OP_EMPTY};
    CUresult result = add((struct spot){out, graph, needs, count}, SIM_NODE_MEM_ALLOC, &op, &node);
    if (result != CUDA_SUCCESS) {
        sim_graph_memory_drop(memory);
        return result;
    }
    node->memory = memory;
    params->address = memory->allocation->base;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, CUdeviceptr address)
{
    struct sim_node *node;
    NEED_GRAPH(graph, owner);
    if (!sim_graph_may_free(owner, address))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = SIM_OP_EMPTY};
    CUresult result = add((struct spot){out, graph, needs, count}, SIM_NODE_MEM_FREE, &op, &node);
    if (result == CUDA_SUCCESS)
        node->freed = address;
    return result;
}

SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, struct alloc_params *out)
{
    NEED_NODE(handle, node);
    if (out == NULL || node->memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_allocation *allocation = node->memory->allocation;
    *out = (struct alloc_params){.props = node->memory->props, .size = allocation->size, .address = allocation->base};
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *out)
{
    NEED_NODE(handle, node);
    if (out == NULL || node->type != SIM_NODE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->freed;
    return CUDA_SUCCESS;
}

/* ---- any node, by the newer entry ---- */

struct node_params {
    int type, reserved[3];
    union {
        struct kernel_params kernel;
        struct {
            int flags, reserved;
            CUcontext context;
            CUDA_MEMCPY3D box;
        } copy;
        struct memset_params set;
        struct host_params host;
        CUgraph child;
        CUevent event;
        struct alloc_params alloc;
        CUdeviceptr freed;
        char bytes[232];
    };
    long long reserved_end;
};
_Static_assert(sizeof(struct node_params) == 256, "ABI");

static CUresult add_node(struct spot spot, struct node_params *params)
{
    SIM_NEED_INIT();
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case SIM_NODE_KERNEL:
        return cuGraphAddKernelNode_v2(spot.out, spot.graph, spot.needs, spot.count, &params->kernel);
    case SIM_NODE_MEMCPY:
        return cuGraphAddMemcpyNode(spot.out, spot.graph, spot.needs, spot.count, &params->copy.box, NULL);
    case SIM_NODE_MEMSET:
        return cuGraphAddMemsetNode(spot.out, spot.graph, spot.needs, spot.count, &params->set, NULL);
    case SIM_NODE_HOST:
        return cuGraphAddHostNode(spot.out, spot.graph, spot.needs, spot.count, &params->host);
    case SIM_NODE_GRAPH:
        return cuGraphAddChildGraphNode(spot.out, spot.graph, spot.needs, spot.count, params->child);
    case SIM_NODE_EMPTY:
        return cuGraphAddEmptyNode(spot.out, spot.graph, spot.needs, spot.count);
    case SIM_NODE_WAIT_EVENT:
    case SIM_NODE_EVENT_RECORD:
        return add_event(spot, params->event, (enum sim_node_type)params->type);
    case SIM_NODE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(spot.out, spot.graph, spot.needs, spot.count, &params->alloc);
    case SIM_NODE_MEM_FREE:
        return cuGraphAddMemFreeNode(spot.out, spot.graph, spot.needs, spot.count, params->freed);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

SIM_API CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                struct node_params *params)
{
    return add_node((struct spot){out, graph, needs, count}, params);
}

SIM_API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, const void *edges, size_t count,
                                   struct node_params *params)
{
    (void)edges;
    return add_node((struct spot){out, graph, needs, count}, params);
}

SIM_API CUresult cuGraphAddNode_v3(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, const void *edges, size_t count,
                                   struct node_params *params)
{
    (void)edges;
    return add_node((struct spot){out, graph, needs, count}, params);
}

/* ---- parameters of nodes ---- */

static CUresult get_kernel(CUgraphNode handle, struct kernel_params *out, bool with_kernel)
{
    NEED_NODE(handle, node);
    if (out == NULL || node->type != SIM_NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_launch *launch = &node->op.launch;
    out->function = launch->function;
    memcpy(out->grid, launch->grid, sizeof out->grid);
    memcpy(out->block, launch->block, sizeof out->block);
    out->shared = launch->shared;
    out->params = out->extra = NULL; /* values are not kept */
    if (with_kernel) {
        out->kernel = NULL;
        out->context = NULL;
    }
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, struct kernel_params *out)
{
    return get_kernel(node, out, false);
}

SIM_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, struct kernel_params *out)
{
    return get_kernel(node, out, true);
}

static CUresult set_kernel(CUgraphNode handle, const struct kernel_params *params, CUkernel kernel)
{
    NEED_NODE(handle, node);
    return node->type != SIM_NODE_KERNEL ? CUDA_ERROR_INVALID_VALUE : kernel_op(params, kernel, &node->op);
}

SIM_API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const struct kernel_params *params)
{
    return set_kernel(node, params, NULL);
}

SIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const struct kernel_params *params)
{
    return set_kernel(node, params, params == NULL ? NULL : params->kernel);
}
