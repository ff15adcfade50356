/*
 * Stream capture: work submitted to a capturing stream becomes nodes of a graph, and calls that would have to wait for work
 * are refused and spoil the capture.
 */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "engine.h"
#include "event.h"
#include "stream.h"

/* A capture under way. All of it, and what streams and events know of captures, is under one lock. */
struct sim_capture {
    uint64_t id;
    struct sim_graph *graph;
    struct sim_stream *origin, *streams; /* streams: all that take part */
    struct sim_context *context;
    int mode;
    pthread_t thread;
    bool spoilt, borrowed; /* borrowed: the graph is the caller's */
    struct sim_capture *next;
};

void sim_captures_lock(void);
void sim_captures_unlock(void);

bool sim_capture_active(struct sim_stream *stream);
/*
 * May work be submitted to the stream? No: STREAM_CAPTURE_INVALIDATED for a spoilt capture; STREAM_CAPTURE_IMPLICIT for the
 * default stream while a stream that waits for it is capturing, which that spoils.
 */
CUresult sim_capture_check(struct sim_stream *stream);

/* Under the lock: is a stream capturing that the default stream would have to wait for? */
bool sim_capture_implicit(const struct sim_stream *stream);

/* What becomes of work, records, memory and whole graphs in a capturing stream. */
CUresult sim_capture_add(struct sim_stream *stream, const struct sim_op *op);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_memory(struct sim_stream *stream, struct sim_graph_memory *memory);
CUresult sim_capture_free(struct sim_stream *stream, CUdeviceptr address);
CUresult sim_capture_graph(struct sim_stream *stream, const struct sim_graph *graph);

/* Makes the stream wait for an event if a capture has to do with either; false when none has. */
bool sim_capture_join(struct sim_stream *stream, struct sim_event *event, CUresult *result);
/* The stream is ended: so is its capture. */
void sim_capture_abandon(struct sim_stream *stream);

/* Is the stream capturing? Then a call that waits for it spoils the capture. */
bool sim_capture_breaks(struct sim_stream *stream);
/* Is this a call that captures under way forbid to the calling thread, as it may wait for work? It spoils them. */
bool sim_capture_forbids(struct sim_context *context);
/* CAPTURED_EVENT for an event recorded in a capture, STREAM_CAPTURE_UNSUPPORTED where captures forbid to look at events. */
CUresult sim_capture_check_event(struct sim_event *event);

#endif
