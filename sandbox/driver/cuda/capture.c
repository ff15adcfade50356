/* The captures under way. One lock of this process guards them; calls pay one atomic load while there is none. */
#include "capture.h"

#include <stdlib.h>

#include "graph_memory.h"
#include "handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_capture *captures;
static _Atomic int capture_count;
static uint64_t last_id;
static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool sim_capture_active(struct sim_stream *stream)
{
    return atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL;
}

void sim_captures_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_captures_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static bool none(void)
{
    return atomic_load(&capture_count) == 0;
}

/* ---- what is forbidden ---- */

bool sim_capture_breaks(struct sim_stream *stream)
{
    if (none())
        return false;
    pthread_mutex_lock(&lock);
    struct sim_capture *capture = stream->capture;
    if (capture != NULL)
        capture->spoilt = true;
    pthread_mutex_unlock(&lock);
    return capture != NULL;
}

/* Under the lock: does this capture forbid the calling thread to make calls that may wait? */
static bool forbids(const struct sim_capture *capture)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (pthread_equal(capture->thread, pthread_self()))
        return true;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool sim_capture_forbids(struct sim_context *context)
{
    bool any = false;
    (void)context; /* captures of all contexts count */
    if (none())
        return false;
    pthread_mutex_lock(&lock);
    for (struct sim_capture *capture = captures; capture != NULL; capture = capture->next) {
        if (!forbids(capture))
            continue;
        capture->spoilt = any = true;
    }
    pthread_mutex_unlock(&lock);
    return any;
}

/* Under the lock. */
static struct sim_capture *find(uint64_t id)
{
    struct sim_capture *capture = id == 0 ? NULL : captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

CUresult sim_capture_check_event(struct sim_event *event)
{
    if (none())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct sim_capture *capture = find(event->capture);
    if (capture != NULL)
        capture->spoilt = true;
    pthread_mutex_unlock(&lock);
    if (capture != NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    return sim_capture_forbids(event->context) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Under the lock: the default stream may not be used while a stream that waits for it is capturing. */
static bool implicit(const struct sim_stream *stream, bool spoil)
{
    bool any = false;
    for (struct sim_capture *capture = captures; stream->is_default && capture != NULL; capture = capture->next) {
        if (capture->context != stream->context || (capture->origin->flags & CU_STREAM_NON_BLOCKING) != 0)
            continue;
        any = true;
        capture->spoilt |= spoil;
    }
    return any;
}

bool sim_capture_implicit(const struct sim_stream *stream)
{
    return implicit(stream, false);
}

CUresult sim_capture_check(struct sim_stream *stream)
{
    if (none())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    const struct sim_capture *capture = stream->capture;
    CUresult result = capture != NULL && capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : implicit(stream, true)           ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                         : CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- recording ---- */

/* Under the lock: adds a node behind the stream's latest, and makes it the latest. */
static CUresult add(struct sim_stream *stream, enum sim_node_type type, const struct sim_op *op, struct sim_node **out)
{
    const struct sim_capture *capture = stream->capture;
    if (capture == NULL || capture->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *out = sim_graph_add(capture->graph, type, op, &stream->tails);
    if (*out == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_nodes_clear(&stream->tails);
    return sim_nodes_add(&stream->tails, *out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_add(struct sim_stream *stream, const struct sim_op *op)
{
    struct sim_node *node;
    pthread_mutex_lock(&lock);
    CUresult result = add(stream, sim_node_type_of(op), op, &node);
    pthread_mutex_unlock(&lock);
    return result;
}

/* A record in a capture makes no node: the event stands for what the stream has so far. */
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
    pthread_mutex_lock(&lock);
    const struct sim_capture *capture = stream->capture;
    if (capture != NULL) {
        sim_nodes_clear(&event->nodes);
        sim_nodes_add_all(&event->nodes, &stream->tails);
        event->capture = capture->id;
    }
    pthread_mutex_unlock(&lock);
    return capture == NULL ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult sim_capture_memory(struct sim_stream *stream, struct sim_graph_memory *memory)
{
    struct sim_node *node;
    pthread_mutex_lock(&lock);
    CUresult result = add(stream, SIM_NODE_MEM_ALLOC, &(struct sim_op){.kind = SIM_OP_EMPTY}, &node);
    if (result == CUDA_SUCCESS)
        node->memory = memory;
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS)
        sim_graph_memory_drop(memory);
    return result;
}

CUresult sim_capture_free(struct sim_stream *stream, CUdeviceptr address)
{
    struct sim_node *node;
    pthread_mutex_lock(&lock);
    const struct sim_capture *capture = stream->capture;
    bool allowed = capture != NULL && sim_graph_may_free(capture->graph, address);
    CUresult result = !allowed ? CUDA_ERROR_INVALID_VALUE : add(stream, SIM_NODE_MEM_FREE, &(struct sim_op){.kind = SIM_OP_EMPTY}, &node);
    if (result == CUDA_SUCCESS)
        node->freed = address;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult sim_capture_graph(struct sim_stream *stream, const struct sim_graph *graph)
{
    struct sim_node *node;
    if (sim_graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_graph *child = sim_graph_copy(graph);
    if (child == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    CUresult result = add(stream, SIM_NODE_GRAPH, &(struct sim_op){.kind = SIM_OP_EMPTY}, &node);
    if (result == CUDA_SUCCESS)
        node->child = child;
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS)
        sim_graph_free(child);
    return result;
}

/* ---- streams that take part ---- */

static void enlist(struct sim_stream *stream, struct sim_capture *capture)
{
    stream->next_captured = capture->streams;
    capture->streams = stream;
    atomic_store(&stream->capture, capture);
}

/* Under the lock. Work outside of a capture cannot be waited for in it, and one capture cannot wait for another. */
static CUresult join(struct sim_stream *stream, const struct sim_event *event, struct sim_capture *theirs)
{
    struct sim_capture *own = stream->capture;
    if (own != NULL && own != theirs) {
        own->spoilt = true;
        if (theirs != NULL)
            theirs->spoilt = true;
        return theirs == NULL ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (theirs->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (own == NULL)
        enlist(stream, theirs);
    return sim_nodes_add_all(&stream->tails, &event->nodes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_capture_join(struct sim_stream *stream, struct sim_event *event, CUresult *result)
{
    if (none())
        return false;
    pthread_mutex_lock(&lock);
    struct sim_capture *theirs = find(event->capture);
    bool concerned = theirs != NULL || stream->capture != NULL;
    if (concerned)
        *result = join(stream, event, theirs);
    pthread_mutex_unlock(&lock);
    return concerned;
}

/* Under the lock: lets all streams go. The graph is the caller's. */
static void end(struct sim_capture *capture)
{
    for (struct sim_stream *stream = capture->streams; stream != NULL; stream = stream->next_captured) {
        sim_nodes_clear(&stream->tails);
        atomic_store(&stream->capture, NULL);
    }
    struct sim_capture **at = &captures;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    atomic_fetch_sub(&capture_count, 1);
    free(capture);
}

void sim_capture_abandon(struct sim_stream *stream)
{
    if (none())
        return;
    pthread_mutex_lock(&lock);
    struct sim_capture *capture = stream->capture;
    if (capture != NULL) {
        struct sim_graph *graph = capture->borrowed ? NULL : capture->graph;
        end(capture);
        if (graph != NULL)
            sim_graph_free(graph);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- beginning and ending ---- */

SIM_API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    SIM_NEED_INIT();
    if (mode == NULL || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult begin(struct sim_stream *stream, int mode, struct sim_graph *lent)
{
    struct sim_capture *capture = calloc(1, sizeof *capture);
    struct sim_graph *graph = capture == NULL || lent != NULL ? lent : sim_graph_new();
    if (graph == NULL) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct sim_capture){.id = ++last_id, .graph = graph, .origin = stream, .context = stream->context,
                                    .mode = mode, .thread = pthread_self(), .borrowed = lent != NULL, .next = captures};
    captures = capture;
    atomic_fetch_add(&capture_count, 1);
    enlist(stream, capture);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    SIM_NEED_STREAM(handle, stream);
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_default)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    CUresult result = stream->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : begin(stream, mode, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}

/* What is captured goes into the caller's graph, behind these nodes. */
SIM_API CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode *needs, const void *edges,
                                             size_t count, int mode)
{
    (void)edges;
    SIM_NEED_STREAM(handle, stream);
    struct sim_graph *graph = sim_handle_get(graph_handle, SIM_GRAPH);
    if (graph == NULL || mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_default)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    struct sim_node_set tails = {0};
    CUresult result = stream->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : sim_nodes_read(&tails, graph, needs, count);
    if (result == CUDA_SUCCESS)
        result = begin(stream, mode, graph);
    if (result == CUDA_SUCCESS)
        stream->tails = tails;
    else
        sim_nodes_clear(&tails);
    pthread_mutex_unlock(&lock);
    return result;
}

SIM_API CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Does any node depend on this one? */
static bool has_dependents(const struct sim_graph *graph, const struct sim_node *node)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (sim_nodes_has(&graph->nodes.nodes[i]->needs, node))
            return true;
    return false;
}

/* Is there a stream whose latest work the origin did not wait for? */
static bool unjoined(const struct sim_capture *capture)
{
    for (const struct sim_stream *stream = capture->streams; stream != NULL; stream = stream->next_captured)
        for (size_t i = 0; stream != capture->origin && i < stream->tails.count; i++)
            if (!sim_nodes_has(&capture->origin->tails, stream->tails.nodes[i]) &&
                !has_dependents(capture->graph, stream->tails.nodes[i]))
                return true;
    return false;
}

/* Under the lock: what the end of a capture answers; the misuses of the first three leave it under way. */
static CUresult judge(const struct sim_stream *stream, bool *over)
{
    const struct sim_capture *capture = stream->capture;
    *over = false;
    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    *over = true;
    if (capture->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return unjoined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    bool over;
    SIM_NEED_STREAM(handle, stream);
    pthread_mutex_lock(&lock);
    CUresult result = judge(stream, &over);
    if (over) {
        struct sim_graph *graph = atomic_load(&stream->capture)->graph;
        bool borrowed = atomic_load(&stream->capture)->borrowed;
        end(stream->capture);
        if (out != NULL)
            *out = result == CUDA_SUCCESS ? graph->handle : NULL;
        if (!borrowed && (result != CUDA_SUCCESS || out == NULL))
            sim_graph_free(graph);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
