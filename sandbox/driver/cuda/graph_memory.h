/*
 * Memory of graphs. Its address is reserved when its node is made and stays the same; device memory stands behind it from a
 * launch that allocates it to what frees it: a node of the same graph, of another graph, or a call. Device memory comes from
 * the device's pool of graphs when a graph is launched or uploaded, and stays there until that is trimmed. Graphs launched
 * into one stream run one after the other and share what their allocations take while they run.
 */
#ifndef SIM_GRAPH_MEMORY_H
#define SIM_GRAPH_MEMORY_H

#include "graph.h"
#include "pool.h"

struct sim_graph_memory {
    struct sim_allocation *allocation;
    struct sim_pool *pool;
    uint64_t bytes;      /* that it takes of the pool */
    CUmemPoolProps props; /* as the node was made with */
    bool live;         /* allocated by a launch, and freed by nothing submitted since; this and below under the lock */
    bool instantiated; /* an executable graph has it */
    int holders;       /* nodes, and life itself */
};

/* What a launch will have used when it is over. */
struct sim_graph_settlement;

/* A new address, of device memory to be. NULL when the host is out of memory. */
struct sim_graph_memory *sim_graph_memory_new(struct sim_device *device, size_t size);
void sim_graph_memory_hold(struct sim_graph_memory *memory);
void sim_graph_memory_drop(struct sim_graph_memory *memory);

/* Is there a memory node in the graph? Such graphs are neither cloned nor made children, and instantiated once at a time. */
bool sim_graph_has_memory(const struct sim_graph *graph);
/* May a node be added that frees this address? It must be a graph's, and freed by no other node of this graph. */
bool sim_graph_may_free(const struct sim_graph *graph, CUdeviceptr address);
/* Takes the memory of a graph for one executable graph: NOT_SUPPORTED when another has it. */
CUresult sim_graph_memory_claim(const struct sim_graph *graph);
void sim_graph_memory_unclaim(const struct sim_graph *graph);

/*
 * Begins a launch of nodes in their order: takes what their allocations need. INVALID_VALUE when an allocation of an earlier
 * launch was not freed (unless launches free it themselves), or what a node frees is not allocated. *out may become NULL.
 */
CUresult sim_graph_memory_begin(struct sim_stream *stream, const struct sim_node_set *order, bool auto_free,
                                struct sim_graph_settlement **out);
/* Has the pools grow as a launch would need them. */
CUresult sim_graph_memory_upload(struct sim_stream *stream, const struct sim_node_set *order);
/* Submits the launch's end. */
CUresult sim_graph_memory_end(struct sim_stream *stream, struct sim_graph_settlement *settlement);

/* Frees the live allocation at an address, by a call: at once, or when the stream gets there. INVALID_VALUE for none. */
CUresult sim_graph_memory_free(CUdeviceptr address, struct sim_stream *stream);

#endif
