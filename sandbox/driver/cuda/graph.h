/* Graphs: work with dependencies, recorded once and launched often. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "engine.h"
#include "user_object.h"

enum sim_node_type {
    SIM_NODE_KERNEL,
    SIM_NODE_MEMCPY,
    SIM_NODE_MEMSET,
    SIM_NODE_HOST,
    SIM_NODE_GRAPH,
    SIM_NODE_EMPTY,
    SIM_NODE_WAIT_EVENT,
    SIM_NODE_EVENT_RECORD,
    SIM_NODE_MEM_ALLOC = 10,
    SIM_NODE_MEM_FREE = 11,
    SIM_NODE_MEM_OP = 12,
};

/* Nodes by pointer, without repetition. */
struct sim_node_set {
    struct sim_node **nodes;
    size_t count;
};

struct sim_graph_memory;

struct sim_node {
    CUgraphNode handle;
    struct sim_graph *graph;
    unsigned int id;
    enum sim_node_type type;
    struct sim_op op;
    struct sim_graph *child;         /* SIM_NODE_GRAPH: owned */
    struct sim_graph_memory *memory; /* SIM_NODE_MEM_ALLOC */
    CUdeviceptr freed;               /* SIM_NODE_MEM_FREE */
    struct sim_node_set needs;       /* what it depends on */
};

struct sim_graph {
    CUgraph handle;
    unsigned int id, last_node_id;
    struct sim_node_set nodes; /* in the order in which they were added */
    struct sim_user_reference *references;
};

/* Adds to a set; false when the host is out of memory. */
bool sim_nodes_add(struct sim_node_set *set, struct sim_node *node);
bool sim_nodes_add_all(struct sim_node_set *set, const struct sim_node_set *more);
bool sim_nodes_has(const struct sim_node_set *set, const struct sim_node *node);
void sim_nodes_remove(struct sim_node_set *set, const struct sim_node *node);
void sim_nodes_clear(struct sim_node_set *set);
/* Nodes of a graph behind handles: INVALID_VALUE if one is none of this graph's. */
CUresult sim_nodes_read(struct sim_node_set *set, const struct sim_graph *graph, const CUgraphNode *handles, size_t count);

struct sim_graph *sim_graph_new(void);
void sim_graph_free(struct sim_graph *graph);
/* A copy, nodes and all. NULL when the host is out of memory. */
struct sim_graph *sim_graph_copy(const struct sim_graph *graph);
/* Adds a node; NULL when the host is out of memory. Takes hold of the event that the op names. */
struct sim_node *sim_graph_add(struct sim_graph *graph, enum sim_node_type type, const struct sim_op *op,
                               const struct sim_node_set *needs);
void sim_node_free(struct sim_node *node);
/* The node type that an op becomes. */
enum sim_node_type sim_node_type_of(const struct sim_op *op);

#endif
