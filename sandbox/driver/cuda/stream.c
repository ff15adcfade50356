/* Streams: making, finding, waiting for and ending them. */
#include "stream.h"

#include <stdlib.h>

#include "capture.h"
#include "handle.h"
#include "pool.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

/* The calling thread's default stream of each context it used. */
struct own_stream {
    struct sim_context *context;
    struct sim_stream *stream;
    struct own_stream *next;
};

static _Thread_local struct own_stream *own_streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned long long last_id;

void sim_stream_hold(struct sim_stream *stream)
{
    atomic_fetch_add(&stream->holders, 1);
}

void sim_stream_drop(struct sim_stream *stream)
{
    if (atomic_fetch_sub(&stream->holders, 1) == 1)
        free(stream);
}

static struct sim_stream *new_stream(struct sim_context *context, unsigned int flags, int priority)
{
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    *stream = (struct sim_stream){.context = context, .flags = flags, .priority = priority, .holders = 1};
    stream->id = atomic_fetch_add(&last_id, 1) + 1;
    pthread_mutex_lock(&lock);
    stream->next = context->streams;
    context->streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

struct sim_stream *sim_stream_default(struct sim_context *context)
{
    pthread_mutex_lock(&context->lock);
    struct sim_stream *stream = atomic_load(&context->legacy);
    if (stream == NULL && (stream = new_stream(context, 0, LEAST_PRIORITY)) != NULL) {
        stream->is_default = true;
        atomic_store(&context->legacy, stream);
    }
    pthread_mutex_unlock(&context->lock);
    return stream;
}

static struct sim_stream *own_stream(struct sim_context *context)
{
    for (struct own_stream *own = own_streams; own != NULL; own = own->next)
        if (own->context == context && own->stream->context == context)
            return own->stream;
    struct own_stream *own = calloc(1, sizeof *own);
    if (own == NULL)
        return NULL;
    *own = (struct own_stream){context, new_stream(context, 0, LEAST_PRIORITY), own_streams};
    if (own->stream == NULL) {
        free(own);
        return NULL;
    }
    sim_stream_hold(own->stream); /* this thread's */
    own_streams = own;
    return own->stream;
}

static CUresult found(struct sim_stream *stream, struct sim_stream **out)
{
    *out = stream;
    return stream == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult sim_stream_need(CUstream handle, struct sim_stream **out)
{
    struct sim_context *context;
    CUresult result = sim_context_need(&context);
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return result != CUDA_SUCCESS ? result : found(sim_stream_default(context), out);
    if (handle == CU_STREAM_PER_THREAD)
        return result != CUDA_SUCCESS ? result : found(own_stream(context), out);
    if (!sim_ready() || sim_engine_calling())
        return result;
    *out = sim_handle_get(handle, SIM_STREAM);
    return *out == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult sim_stream_submit(struct sim_stream *stream, const struct sim_op *op)
{
    CUresult result = sim_capture_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_capture_active(stream))
        return sim_capture_add(stream, op);
    return sim_engine_submit(stream, op);
}

static void unlink_stream(struct sim_stream *stream)
{
    pthread_mutex_lock(&lock);
    struct sim_stream **at = &stream->context->streams;
    while (*at != NULL && *at != stream)
        at = &(*at)->next;
    if (*at == stream)
        *at = stream->next;
    pthread_mutex_unlock(&lock);
}

static struct sim_stream *pop_stream(struct sim_context *context)
{
    pthread_mutex_lock(&lock);
    struct sim_stream *stream = context->streams;
    if (stream != NULL)
        context->streams = stream->next;
    pthread_mutex_unlock(&lock);
    return stream;
}

void sim_streams_end(struct sim_context *context)
{
    sim_engine_drain(context->device);
    for (struct sim_stream *stream = pop_stream(context); stream != NULL; stream = pop_stream(context)) {
        sim_capture_abandon(stream);
        if (stream->handle != NULL)
            sim_handle_end(stream->handle, SIM_STREAM);
        stream->context = NULL;
        sim_stream_drop(stream);
    }
    atomic_store(&context->legacy, NULL);
}

/* ---- entries ---- */

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > LEAST_PRIORITY ? LEAST_PRIORITY : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
    struct sim_stream *stream = new_stream(context, flags, priority);
    if (stream != NULL)
        stream->handle = sim_handle_new(SIM_STREAM, stream);
    if (stream == NULL || stream->handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = stream->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, LEAST_PRIORITY);
}

/* The default streams cannot be destroyed; queued work goes on and is let go when it is done. */
SIM_API CUresult cuStreamDestroy_v2(CUstream handle)
{
    SIM_NEED_INIT();
    struct sim_stream *stream = sim_handle_end(handle, SIM_STREAM);
    if (stream == NULL)
        return handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    sim_capture_abandon(stream);
    unlink_stream(stream);
    sim_stream_drop(stream);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamDestroy(CUstream handle)
{
    return cuStreamDestroy_v2(handle);
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (sim_capture_breaks(stream) || (stream->is_default && sim_capture_forbids(stream->context)))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_engine_await(stream);
    sim_pools_settle(stream->context->device);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (sim_capture_breaks(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return sim_engine_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API CUresult cuCtxSynchronize(void)
{
    SIM_NEED_CONTEXT(context);
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_engine_drain(context->device);
    sim_pools_settle(context->device);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    SIM_NEED_INIT();
    struct sim_context *context = handle == NULL ? sim_context_current() : sim_context_of(handle);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_engine_drain(context->device);
    sim_pools_settle(context->device);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    SIM_NEED_STREAM(handle, stream);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    SIM_NEED_STREAM(handle, stream);
    if (priority == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    SIM_NEED_STREAM(handle, stream);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    SIM_NEED_STREAM(handle, stream);
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stream->context->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, void **green)
{
    if (green != NULL)
        *green = NULL;
    return cuStreamGetCtx(handle, context);
}

SIM_API CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    SIM_NEED_STREAM(handle, stream);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = stream->context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags)
{
    SIM_NEED_STREAM(handle, stream);
    struct sim_event *event = sim_handle_get(event_handle, SIM_EVENT);
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_event_make_wait(event, stream);
}
