/* What graphs and nodes answer about themselves, and the edges between nodes. */
#include <stdio.h>
#include <stdlib.h>

#include "graph_memory.h"
#include "handle.h"

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

/* Writes handles as far as there is room. Without a list it answers the count; with one, what is written and NULLs behind. */
static CUresult list(const struct sim_node_set *set, CUgraphNode *out, size_t *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out != NULL && i < *count; i++)
        out[i] = i < set->count ? set->nodes[i]->handle : NULL;
    if (out == NULL || *count > set->count)
        *count = set->count;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *out, size_t *count)
{
    NEED_GRAPH(handle, graph);
    return list(&graph->nodes, out, count);
}

SIM_API CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *out, size_t *count)
{
    struct sim_node_set roots = {0};
    NEED_GRAPH(handle, graph);
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.nodes[i]->needs.count == 0 && !sim_nodes_add(&roots, graph->nodes.nodes[i]))
            break;
    CUresult result = list(&roots, out, count);
    sim_nodes_clear(&roots);
    return result;
}

SIM_API CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *out, size_t *count)
{
    NEED_NODE(handle, node);
    return list(&node->needs, out, count);
}

SIM_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *out, void *edges, size_t *count)
{
    (void)edges;
    return cuGraphNodeGetDependencies(handle, out, count);
}

SIM_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *out, size_t *count)
{
    struct sim_node_set dependents = {0};
    NEED_NODE(handle, node);
    for (size_t i = 0; i < node->graph->nodes.count; i++)
        if (sim_nodes_has(&node->graph->nodes.nodes[i]->needs, node))
            sim_nodes_add(&dependents, node->graph->nodes.nodes[i]);
    CUresult result = list(&dependents, out, count);
    sim_nodes_clear(&dependents);
    return result;
}

SIM_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *out, void *edges, size_t *count)
{
    (void)edges;
    return cuGraphNodeGetDependentNodes(handle, out, count);
}

SIM_API CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    size_t found = 0;
    NEED_GRAPH(handle, graph);
    if (count == NULL || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct sim_node *node = graph->nodes.nodes[i];
        for (size_t n = 0; n < node->needs.count; n++, found++) {
            if (from == NULL || found >= *count)
                continue;
            from[found] = node->needs.nodes[n]->handle;
            to[found] = node->handle;
        }
    }
    if (from == NULL || *count > found)
        *count = found;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, void *edges, size_t *count)
{
    (void)edges;
    return cuGraphGetEdges(handle, from, to, count);
}

/* ---- changing edges ---- */

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
    NEED_GRAPH(handle, graph);
    if (count > 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sim_node *first = sim_handle_get(from[i], SIM_GRAPH_NODE), *second = sim_handle_get(to[i], SIM_GRAPH_NODE);
        if (first == NULL || second == NULL || first == second || first->graph != graph || second->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_nodes_has(&second->needs, first) == add)
            return CUDA_ERROR_INVALID_VALUE;
        if (!add && sim_graph_has_memory(graph))
            return CUDA_ERROR_NOT_SUPPORTED;
        if (!add)
            sim_nodes_remove(&second->needs, first);
        else if (!sim_nodes_add(&second->needs, first))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return change_edges(graph, from, to, count, true);
}

SIM_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *edges,
                                           size_t count)
{
    (void)edges;
    return change_edges(graph, from, to, count, true);
}

SIM_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return change_edges(graph, from, to, count, false);
}

SIM_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *edges,
                                              size_t count)
{
    (void)edges;
    return change_edges(graph, from, to, count, false);
}

SIM_API CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    NEED_NODE(handle, node);
    if (sim_graph_has_memory(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < node->graph->nodes.count; i++)
        sim_nodes_remove(&node->graph->nodes.nodes[i]->needs, node);
    sim_nodes_remove(&node->graph->nodes, node);
    sim_node_free(node);
    return CUDA_SUCCESS;
}

/* ---- nodes ---- */

SIM_API CUresult cuGraphNodeGetType(CUgraphNode handle, int *type)
{
    NEED_NODE(handle, node);
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph *out)
{
    NEED_NODE(handle, node);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->graph->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned int *id)
{
    NEED_NODE(handle, node);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = node->id;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphGetId(CUgraph handle, unsigned int *id)
{
    NEED_GRAPH(handle, graph);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = graph->id;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *out)
{
    NEED_NODE(handle, node);
    if (out == NULL || node->child == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->child->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
    (void)flags;
    NEED_GRAPH(handle, graph);
    FILE *file = path == NULL ? NULL : fopen(path, "we");
    if (file == NULL)
        return path == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph graph_%u {\n", graph->id);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct sim_node *node = graph->nodes.nodes[i];
        fprintf(file, "  node_%u [label=\"%u\"];\n", node->id, node->type);
        for (size_t n = 0; n < node->needs.count; n++)
            fprintf(file, "  node_%u -> node_%u;\n", node->needs.nodes[n]->id, node->id);
    }
    fprintf(file, "}\n");
    fclose(file);
    return CUDA_SUCCESS;
}
