/* Streams. Handles 0 (or 1) and 2 stand for the default stream of the context and of the calling thread. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "context.h"
#include "engine.h"
#include "graph.h"

struct sim_capture;

struct sim_stream {
    CUstream handle;
    struct sim_context *context;
    unsigned int flags;
    int priority;
    unsigned long long id;
    bool is_default; /* the context's own: other blocking streams wait for it */
    _Atomic int holders; /* the handle, the worker while there are ops, and the ops that wait for it */
    uint64_t submitted, finished; /* ops; under the engine's lock, as is the queue */
    struct sim_queue queue;
    _Atomic(struct sim_capture *) capture; /* changed under the lock of captures */
    struct sim_node_set tails;             /* in a capture: what the next node depends on */
    struct sim_stream *next_captured;      /* in the same capture */
    struct sim_stream *next;     /* of the same context; under the lock of streams */
};

/* The stream behind a handle, for a call in the current context. */
CUresult sim_stream_need(CUstream handle, struct sim_stream **out);
/* The same for the default stream of a context. */
struct sim_stream *sim_stream_default(struct sim_context *context);

void sim_stream_hold(struct sim_stream *stream);
void sim_stream_drop(struct sim_stream *stream);

/* Submits to the engine, or records in the capture that the stream is in. */
CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op);

/* Ends all streams of a context after their work. */
void sim_streams_end(struct sim_context *context);

#define SIM_NEED_STREAM(handle, name)                              \
    struct sim_stream *name;                                       \
    do {                                                           \
        CUresult sim_result_ = sim_stream_need(handle, &(name));   \
        if (sim_result_ != CUDA_SUCCESS)                           \
            return sim_result_;                                    \
    } while (0)

#endif
