/* Memory of graphs: who has it, and what of the pool stands behind it. One lock of this process guards it all. */
#include "graph_memory.h"

#include <stdlib.h>

#include "../machine/visible.h"
#include "stream.h"

/* What the graphs under way in one stream take of a pool while they run: the most that any of them needs. */
struct lease {
    struct sim_pool *pool;
    struct sim_stream *stream;
    uint64_t bytes;
    unsigned int launches;
    struct lease *next;
};

/* What one launch will give back of one pool. */
struct due {
    struct sim_pool *pool;
    bool leased;
    uint64_t freed;
};

struct sim_graph_settlement {
    struct sim_stream *stream;
    struct due dues[]; /* by device */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lease *leases;

/* ---- addresses ---- */

struct sim_graph_memory *sim_graph_memory_new(struct sim_device *device, size_t size)
{
    struct sim_graph_memory *memory = calloc(1, sizeof *memory);
    struct sim_pool *pool = memory == NULL || !sim_device_attach(device) ? NULL : sim_pool_of_graphs(device);
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_GRAPH, .pool = pool, .graph_memory = memory};
    struct sim_allocation *allocation = pool == NULL ? NULL : sim_heap_take(&pool->heap, &request);
    if (allocation == NULL) {
        free(memory);
        return NULL;
    }
    *memory = (struct sim_graph_memory){
        .allocation = allocation, .pool = pool, .bytes = sim_pool_share(size), .holders = 1};
    return memory;
}

/* Under the lock. */
static void drop(struct sim_graph_memory *memory)
{
    if (--memory->holders > 0)
        return;
    sim_heap_give(memory->allocation);
    free(memory);
}

void sim_graph_memory_hold(struct sim_graph_memory *memory)
{
    pthread_mutex_lock(&lock);
    memory->holders++;
    pthread_mutex_unlock(&lock);
}

void sim_graph_memory_drop(struct sim_graph_memory *memory)
{
    if (memory == NULL)
        return;
    pthread_mutex_lock(&lock);
    drop(memory);
    pthread_mutex_unlock(&lock);
}

/* NULL: no memory of a graph begins there. */
static struct sim_graph_memory *memory_at(CUdeviceptr address)
{
    struct sim_allocation found;
    return sim_heap_find(address, &found) && found.base == address ? found.graph_memory : NULL;
}

/* ---- graphs that have memory ---- */

bool sim_graph_has_memory(const struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.nodes[i]->type == SIM_NODE_MEM_ALLOC || graph->nodes.nodes[i]->type == SIM_NODE_MEM_FREE)
            return true;
    return false;
}

bool sim_graph_may_free(const struct sim_graph *graph, CUdeviceptr address)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.nodes[i]->type == SIM_NODE_MEM_FREE && graph->nodes.nodes[i]->freed == address)
            return false;
    return memory_at(address) != NULL;
}

/* Under the lock. */
static void set_instantiated(const struct sim_graph *graph, bool instantiated)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.nodes[i]->memory != NULL)
            graph->nodes.nodes[i]->memory->instantiated = instantiated;
}

CUresult sim_graph_memory_claim(const struct sim_graph *graph)
{
    bool taken = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < graph->nodes.count; i++)
        taken |= graph->nodes.nodes[i]->memory != NULL && graph->nodes.nodes[i]->memory->instantiated;
    if (!taken)
        set_instantiated(graph, true);
    pthread_mutex_unlock(&lock);
    return taken ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

void sim_graph_memory_unclaim(const struct sim_graph *graph)
{
    pthread_mutex_lock(&lock);
    set_instantiated(graph, false);
    pthread_mutex_unlock(&lock);
}

/* ---- what graphs take while they run; all under the lock ---- */

static struct lease **find_lease(struct sim_pool *pool, const struct sim_stream *stream)
{
    struct lease **at = &leases;
    while (*at != NULL && ((*at)->pool != pool || (*at)->stream != stream))
        at = &(*at)->next;
    return at;
}

static bool begin_lease(struct sim_pool *pool, struct sim_stream *stream, uint64_t bytes)
{
    struct lease **at = find_lease(pool, stream);
    uint64_t before = *at == NULL ? 0 : (*at)->bytes;
    if (bytes > before && !sim_pool_hold(pool, bytes - before))
        return false;
    if (*at == NULL && (*at = calloc(1, sizeof **at)) == NULL) {
        sim_pool_unhold(pool, bytes);
        return false;
    }
    (*at)->pool = pool;
    (*at)->stream = stream;
    (*at)->bytes = bytes > before ? bytes : before;
    (*at)->launches++;
    return true;
}

static void end_lease(struct sim_pool *pool, const struct sim_stream *stream)
{
    struct lease **at = find_lease(pool, stream), *lease = *at;
    if (--lease->launches > 0)
        return;
    sim_pool_unhold(pool, lease->bytes);
    *at = lease->next;
    free(lease);
}

/* ---- launches; all under the lock ---- */

/* The allocation node in these nodes whose memory a free node frees; NULL: it is another graph's. */
static const struct sim_node *allocator_of(const struct sim_node_set *order, CUdeviceptr address)
{
    for (size_t i = 0; i < order->count; i++)
        if (order->nodes[i]->memory != NULL && order->nodes[i]->memory->allocation->base == address)
            return order->nodes[i];
    return NULL;
}

static bool freed_within(const struct sim_node_set *order, CUdeviceptr address)
{
    for (size_t i = 0; i < order->count; i++)
        if (order->nodes[i]->type == SIM_NODE_MEM_FREE && order->nodes[i]->freed == address)
            return true;
    return false;
}

static CUresult check(const struct sim_node_set *order, bool auto_free)
{
    for (size_t i = 0; i < order->count; i++) {
        const struct sim_node *node = order->nodes[i];
        if (node->memory != NULL && node->memory->live && !auto_free)
            return CUDA_ERROR_INVALID_VALUE;
        if (node->type != SIM_NODE_MEM_FREE || allocator_of(order, node->freed) != NULL)
            continue;
        const struct sim_graph_memory *memory = memory_at(node->freed);
        if (memory == NULL || !memory->live)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* What the nodes' allocations take of a pool at most at any time, and what of it is left when they have run. */
static uint64_t peak_of(const struct sim_node_set *order, const struct sim_pool *pool, uint64_t *left)
{
    uint64_t peak = 0;
    *left = 0;
    for (size_t i = 0; i < order->count; i++) {
        const struct sim_node *node = order->nodes[i];
        const struct sim_node *allocator = node->type == SIM_NODE_MEM_FREE ? allocator_of(order, node->freed) : NULL;
        if (node->memory != NULL && node->memory->pool == pool && !node->memory->live)
            *left += node->memory->bytes;
        else if (allocator != NULL && allocator->memory->pool == pool)
            *left -= allocator->memory->bytes;
        peak = *left > peak ? *left : peak;
    }
    return peak;
}

static bool take(struct sim_stream *stream, const struct sim_node_set *order, struct sim_pool *pool, struct due *due)
{
    uint64_t left, peak = peak_of(order, pool, &left);
    due->pool = pool;
    if (left > 0 && !sim_pool_hold(pool, left))
        return false;
    due->leased = peak > left;
    if (!due->leased || begin_lease(pool, stream, peak - left))
        return true;
    if (left > 0)
        sim_pool_unhold(pool, left);
    due->leased = false;
    return false;
}

/* Undoes `take`. */
static void untake(const struct sim_stream *stream, const struct sim_node_set *order, const struct due *due)
{
    uint64_t left;
    peak_of(order, due->pool, &left);
    sim_pool_unhold(due->pool, left);
    if (due->leased)
        end_lease(due->pool, stream);
}

static CUresult take_all(struct sim_stream *stream, const struct sim_node_set *order, struct sim_graph_settlement *settlement)
{
    for (int i = 0; i < sim_device_count(); i++) {
        struct sim_pool *pool = sim_device(i)->graph_pool;
        if (pool == NULL || take(stream, order, pool, &settlement->dues[i]))
            continue;
        while (--i >= 0)
            if (settlement->dues[i].pool != NULL)
                untake(stream, order, &settlement->dues[i]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* What a launch allocates and does not free lives on; what it frees of others' does not. */
static void change_lives(const struct sim_node_set *order, struct sim_graph_settlement *settlement)
{
    for (size_t i = 0; i < order->count; i++) {
        struct sim_node *node = order->nodes[i];
        if (node->memory != NULL && !node->memory->live && !freed_within(order, node->memory->allocation->base)) {
            node->memory->live = true;
            node->memory->holders++;
        } else if (node->type == SIM_NODE_MEM_FREE && allocator_of(order, node->freed) == NULL) {
            struct sim_graph_memory *memory = memory_at(node->freed);
            memory->live = false;
            settlement->dues[memory->pool->device->ordinal].freed += memory->bytes;
            drop(memory);
        }
    }
}

static CUresult begin(struct sim_stream *stream, const struct sim_node_set *order, bool auto_free,
                      struct sim_graph_settlement *settlement)
{
    CUresult result = check(order, auto_free);
    if (result == CUDA_SUCCESS)
        result = take_all(stream, order, settlement);
    if (result == CUDA_SUCCESS)
        change_lives(order, settlement);
    return result;
}

CUresult sim_graph_memory_begin(struct sim_stream *stream, const struct sim_node_set *order, bool auto_free,
                                struct sim_graph_settlement **out)
{
    *out = NULL;
    bool any = false;
    for (size_t i = 0; i < order->count; i++)
        any |= order->nodes[i]->type == SIM_NODE_MEM_ALLOC || order->nodes[i]->type == SIM_NODE_MEM_FREE;
    if (!any)
        return CUDA_SUCCESS;
    *out = calloc(1, sizeof **out + (size_t)sim_device_count() * sizeof *(*out)->dues);
    if (*out == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->stream = stream;
    pthread_mutex_lock(&lock);
    CUresult result = begin(stream, order, auto_free, *out);
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS)
        return result;
    free(*out);
    *out = NULL;
    return result;
}

CUresult sim_graph_memory_upload(struct sim_stream *stream, const struct sim_node_set *order)
{
    struct due dues[SIM_MAX_DEVICES] = {{0}};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < sim_device_count() && result == CUDA_SUCCESS; i++) {
        struct sim_pool *pool = sim_device(i)->graph_pool;
        if (pool != NULL && take(stream, order, pool, &dues[i]))
            untake(stream, order, &dues[i]);
        else if (pool != NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void settle(void *data)
{
    struct sim_graph_settlement *settlement = data;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < sim_device_count(); i++) {
        const struct due *due = &settlement->dues[i];
        if (due->leased)
            end_lease(due->pool, settlement->stream);
        if (due->freed > 0)
            sim_pool_unhold(sim_device(i)->graph_pool, due->freed);
    }
    pthread_mutex_unlock(&lock);
    free(settlement);
}

CUresult sim_graph_memory_end(struct sim_stream *stream, struct sim_graph_settlement *settlement)
{
    if (settlement == NULL)
        return CUDA_SUCCESS;
    struct sim_op op = {.kind = SIM_OP_CALL, .call = {settle, settlement}};
    CUresult result = sim_engine_submit(stream, &op);
    if (result != CUDA_SUCCESS)
        settle(settlement);
    return result;
}

/* ---- freeing by calls ---- */

struct release {
    struct sim_pool *pool;
    uint64_t bytes;
};

static void release(void *data)
{
    struct release *one = data;
    sim_pool_unhold(one->pool, one->bytes);
    free(one);
}

CUresult sim_graph_memory_free(CUdeviceptr address, struct sim_stream *stream)
{
    struct release *one = malloc(sizeof *one);
    if (one == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    struct sim_graph_memory *memory = memory_at(address);
    bool live = memory != NULL && memory->live;
    if (live) {
        *one = (struct release){memory->pool, memory->bytes};
        memory->live = false;
        drop(memory);
    }
    pthread_mutex_unlock(&lock);
    if (!live) {
        free(one);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_op op = {.kind = SIM_OP_CALL, .call = {release, one}};
    if (stream != NULL && sim_engine_submit(stream, &op) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    sim_engine_drain(one->pool->device);
    release(one);
    return CUDA_SUCCESS;
}
