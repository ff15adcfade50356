/* Graphs and their nodes, as data. A graph is the caller's to lock, as CUDA has it. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "graph_memory.h"
#include "handle.h"

static _Atomic unsigned int last_graph_id;

/* ---- sets of nodes ---- */

bool sim_nodes_has(const struct sim_node_set *set, const struct sim_node *node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] == node)
            return true;
    return false;
}

/* Grows by doubling: the capacity is the power of two at or above the count. */
static bool append(struct sim_node_set *set, struct sim_node *node)
{
    if ((set->count & (set->count - 1)) == 0) {
        size_t capacity = set->count == 0 ? 1 : set->count * 2;
        struct sim_node **grown = realloc(set->nodes, capacity * sizeof(struct sim_node *));
        if (grown == NULL)
            return false;
        set->nodes = grown;
    }
    set->nodes[set->count++] = node;
    return true;
}

bool sim_nodes_add(struct sim_node_set *set, struct sim_node *node)
{
    return sim_nodes_has(set, node) || append(set, node);
}

bool sim_nodes_add_all(struct sim_node_set *set, const struct sim_node_set *more)
{
    for (size_t i = 0; i < more->count; i++)
        if (!sim_nodes_add(set, more->nodes[i]))
            return false;
    return true;
}

void sim_nodes_remove(struct sim_node_set *set, const struct sim_node *node)
{
    struct sim_node_set rest = {0};
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] != node && !append(&rest, set->nodes[i]))
            break;
    sim_nodes_clear(set);
    *set = rest;
}

void sim_nodes_clear(struct sim_node_set *set)
{
    free(set->nodes);
    *set = (struct sim_node_set){0};
}

CUresult sim_nodes_read(struct sim_node_set *set, const struct sim_graph *graph, const CUgraphNode *handles, size_t count)
{
    if (count > 0 && handles == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct sim_node *node = sim_handle_get(handles[i], SIM_GRAPH_NODE);
        if (node == NULL || node->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        if (!sim_nodes_add(set, node))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* ---- nodes ---- */

static bool names_event(const struct sim_op *op)
{
    return op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT;
}

enum sim_node_type sim_node_type_of(const struct sim_op *op)
{
    static const enum sim_node_type types[] = {
        [SIM_OP_EMPTY] = SIM_NODE_EMPTY, [SIM_OP_KERNEL] = SIM_NODE_KERNEL,       [SIM_OP_COPY] = SIM_NODE_MEMCPY,
        [SIM_OP_SET] = SIM_NODE_MEMSET,  [SIM_OP_HOST] = SIM_NODE_HOST,           [SIM_OP_RECORD] = SIM_NODE_EVENT_RECORD,
        [SIM_OP_CALL] = SIM_NODE_EMPTY,  [SIM_OP_WAIT] = SIM_NODE_WAIT_EVENT,     [SIM_OP_MOVE] = SIM_NODE_EMPTY,
        [SIM_OP_WAIT_WORD] = SIM_NODE_MEM_OP, [SIM_OP_WRITE_WORD] = SIM_NODE_MEM_OP,
    };
    return types[op->kind];
}

struct sim_node *sim_graph_add(struct sim_graph *graph, enum sim_node_type type, const struct sim_op *op,
                               const struct sim_node_set *needs)
{
    struct sim_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    node->graph = graph;
    node->id = graph->last_node_id++;
    node->type = type;
    node->op = *op;
    if (names_event(op))
        sim_event_hold(op->event.event);
    node->handle = sim_handle_new(SIM_GRAPH_NODE, node);
    if ((needs == NULL || sim_nodes_add_all(&node->needs, needs)) && append(&graph->nodes, node))
        return node;
    sim_node_free(node);
    return NULL;
}

void sim_node_free(struct sim_node *node)
{
    sim_handle_end(node->handle, SIM_GRAPH_NODE);
    if (names_event(&node->op))
        sim_event_drop(node->op.event.event);
    if (node->child != NULL)
        sim_graph_free(node->child);
    sim_graph_memory_drop(node->memory);
    sim_nodes_clear(&node->needs);
    free(node);
}

/* ---- graphs ---- */

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->id = atomic_fetch_add(&last_graph_id, 1) + 1;
    graph->handle = sim_handle_new(SIM_GRAPH, graph);
    return graph;
}

void sim_graph_free(struct sim_graph *graph)
{
    sim_handle_end(graph->handle, SIM_GRAPH);
    for (size_t i = 0; i < graph->nodes.count; i++)
        sim_node_free(graph->nodes.nodes[i]);
    sim_nodes_clear(&graph->nodes);
    sim_user_references_drop(&graph->references);
    free(graph);
}

static size_t position(const struct sim_graph *graph, const struct sim_node *node)
{
    size_t i = 0;
    while (i < graph->nodes.count && graph->nodes.nodes[i] != node)
        i++;
    return i;
}

static bool copy_node(struct sim_graph *copy, const struct sim_node *node)
{
    struct sim_node *twin = sim_graph_add(copy, node->type, &node->op, NULL);
    if (twin == NULL)
        return false;
    twin->freed = node->freed;
    twin->memory = node->memory;
    if (twin->memory != NULL)
        sim_graph_memory_hold(twin->memory);
    twin->child = node->child == NULL ? NULL : sim_graph_copy(node->child);
    return node->child == NULL || twin->child != NULL;
}

struct sim_graph *sim_graph_copy(const struct sim_graph *graph)
{
    struct sim_graph *copy = sim_graph_new();
    bool good = copy != NULL && sim_user_references_copy(&copy->references, graph->references);
    for (size_t i = 0; good && i < graph->nodes.count; i++)
        good = copy_node(copy, graph->nodes.nodes[i]);
    for (size_t i = 0; good && i < graph->nodes.count; i++) {
        const struct sim_node_set *needs = &graph->nodes.nodes[i]->needs;
        for (size_t n = 0; good && n < needs->count; n++)
            good = append(&copy->nodes.nodes[i]->needs, copy->nodes.nodes[position(graph, needs->nodes[n])]);
    }
    if (good || copy == NULL)
        return copy;
    sim_graph_free(copy);
    return NULL;
}
