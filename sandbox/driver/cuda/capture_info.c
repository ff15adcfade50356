/* What streams answer about their captures, and how the next node's dependencies are changed. */
#include <stdlib.h>

#include "capture.h"
#include "graph.h"
#include "handle.h"

static int status_of(const struct sim_capture *capture)
{
    return capture == NULL   ? CU_STREAM_CAPTURE_STATUS_NONE
           : capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                             : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* The default stream cannot be asked while it may not be used. */
SIM_API CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    SIM_NEED_STREAM(handle, stream);
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_captures_lock();
    CUresult result = sim_capture_implicit(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
    *status = status_of(stream->capture);
    sim_captures_unlock();
    return result;
}

/* Dependencies as handles, in memory of the calling thread that lives until its next call. */
static CUresult list_tails(const struct sim_stream *stream, const CUgraphNode **out)
{
    static _Thread_local CUgraphNode *list;
    CUgraphNode *grown = realloc(list, (stream->tails.count + 1) * sizeof(CUgraphNode));
    if (grown == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list = grown;
    for (size_t i = 0; i < stream->tails.count; i++)
        list[i] = stream->tails.nodes[i]->handle;
    *out = list;
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult describe(const struct sim_stream *stream, int *status, uint64_t *id, CUgraph *graph,
                         const CUgraphNode **tails, size_t *count)
{
    const struct sim_capture *capture = stream->capture;
    *status = status_of(capture);
    if (capture == NULL || capture->spoilt)
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = capture->id;
    if (graph != NULL)
        *graph = capture->graph->handle;
    if (count != NULL)
        *count = stream->tails.count;
    return tails == NULL ? CUDA_SUCCESS : list_tails(stream, tails);
}

static CUresult info(CUstream handle, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **tails, size_t *count)
{
    SIM_NEED_STREAM(handle, stream);
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_captures_lock();
    CUresult result = sim_capture_implicit(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                   : describe(stream, status, id, graph, tails, count);
    sim_captures_unlock();
    return result;
}

SIM_API CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id)
{
    return info(stream, status, id, NULL, NULL, NULL);
}

SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                           const CUgraphNode **tails, size_t *count)
{
    return info(stream, status, id, graph, tails, count);
}

/* Edges of this driver carry no data. */
SIM_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                           const CUgraphNode **tails, const void **edges, size_t *count)
{
    if (edges != NULL)
        *edges = NULL;
    return info(stream, status, id, graph, tails, count);
}

static CUresult update(CUstream handle, const CUgraphNode *nodes, size_t count, unsigned int flags)
{
    enum { ADD = 0, SET = 1 };
    struct sim_node_set set = {0};
    SIM_NEED_STREAM(handle, stream);
    if (flags != ADD && flags != SET)
        return CUDA_ERROR_INVALID_VALUE;
    sim_captures_lock();
    const struct sim_capture *capture = stream->capture;
    CUresult result = capture == NULL ? CUDA_ERROR_ILLEGAL_STATE : sim_nodes_read(&set, capture->graph, nodes, count);
    if (result == CUDA_SUCCESS && flags == SET)
        sim_nodes_clear(&stream->tails);
    if (result == CUDA_SUCCESS && !sim_nodes_add_all(&stream->tails, &set))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_captures_unlock();
    sim_nodes_clear(&set);
    return result;
}

SIM_API CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
{
    return update(stream, nodes, count, flags);
}

SIM_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes, const void *edges, size_t count,
                                                      unsigned int flags)
{
    (void)edges;
    return update(stream, nodes, count, flags);
}
