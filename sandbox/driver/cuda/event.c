/* Events. */
#include "event.h"

#include <stdlib.h>

#include "capture.h"
#include "engine.h"
#include "handle.h"
#include "pool.h"
#include "stream.h"

enum { EVENT_FLAGS = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS };

void sim_event_hold(struct sim_event *event)
{
    atomic_fetch_add(&event->holders, 1);
}

void sim_event_drop(struct sim_event *event)
{
    if (atomic_fetch_sub(&event->holders, 1) != 1)
        return;
    pthread_mutex_destroy(&event->lock);
    pthread_cond_destroy(&event->change);
    free(event);
}

void sim_event_reached(struct sim_event *event, uint64_t generation, uint64_t time)
{
    pthread_mutex_lock(&event->lock);
    if (generation > event->reached) {
        event->reached = generation;
        event->time = time;
    }
    bool watched = event->watched;
    event->watched = false;
    pthread_cond_broadcast(&event->change);
    pthread_mutex_unlock(&event->lock);
    if (watched)
        sim_engines_wake();
}

void sim_event_await(struct sim_event *event, uint64_t generation)
{
    pthread_mutex_lock(&event->lock);
    while (event->reached < generation)
        pthread_cond_wait(&event->change, &event->lock);
    pthread_mutex_unlock(&event->lock);
}

bool sim_event_watch(struct sim_event *event, uint64_t generation, uint64_t *time)
{
    pthread_mutex_lock(&event->lock);
    bool reached = event->reached >= generation;
    event->watched |= !reached;
    *time = event->time;
    pthread_mutex_unlock(&event->lock);
    return reached;
}

void sim_event_mark(struct sim_event *event, uint64_t generation, struct sim_moment end)
{
    pthread_mutex_lock(&event->lock);
    if (generation > event->marked) {
        event->marked = generation;
        event->end = end;
    }
    pthread_mutex_unlock(&event->lock);
}

bool sim_event_end_of(struct sim_event *event, uint64_t generation, const struct sim_device *device, struct sim_moment *end)
{
    pthread_mutex_lock(&event->lock);
    bool known = event->marked == generation && event->device == device;
    *end = event->end;
    pthread_mutex_unlock(&event->lock);
    return known;
}

CUresult sim_event_make_wait(struct sim_event *event, struct sim_stream *stream)
{
    CUresult result;
    if (sim_capture_join(stream, event, &result))
        return result;
    pthread_mutex_lock(&event->lock);
    uint64_t generation = event->recorded;
    bool over = event->reached >= generation;
    pthread_mutex_unlock(&event->lock);
    if (generation == 0)
        return CUDA_SUCCESS;
    struct sim_op op = {.kind = over ? SIM_OP_EMPTY : SIM_OP_WAIT, .event = {event, generation}};
    return sim_stream_submit(stream, &op);
}

/* ---- entries ---- */

SIM_API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || (flags & ~(unsigned int)EVENT_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (struct sim_event){.context = context, .flags = flags, .holders = 1};
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->change, NULL);
    event->handle = sim_handle_new(SIM_EVENT, event);
    *out = event->handle;
    return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SIM_API CUresult cuEventDestroy_v2(CUevent handle)
{
    SIM_NEED_INIT();
    struct sim_event *event = sim_handle_end(handle, SIM_EVENT);
    if (event == NULL)
        return handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    sim_event_drop(event);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuEventDestroy(CUevent handle)
{
    return cuEventDestroy_v2(handle);
}

#define NEED_EVENT(handle, name)                                      \
    SIM_NEED_INIT();                                                  \
    struct sim_event *name = sim_handle_get(handle, SIM_EVENT);       \
    if ((name) == NULL)                                               \
        return CUDA_ERROR_INVALID_HANDLE

static CUresult record(struct sim_event *event, struct sim_stream *stream)
{
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_capture_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_capture_active(stream))
        return sim_capture_record(stream, event);
    pthread_mutex_lock(&event->lock);
    struct sim_op op = {.kind = SIM_OP_RECORD, .event = {event, ++event->recorded}};
    event->device = stream->context->device;
    event->capture = 0;
    pthread_mutex_unlock(&event->lock);
    return sim_stream_submit(stream, &op);
}

SIM_API CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags)
{
    SIM_NEED_STREAM(stream_handle, stream);
    NEED_EVENT(handle, event);
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(event, stream);
}

SIM_API CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    return cuEventRecordWithFlags(handle, stream, 0);
}

SIM_API CUresult cuEventQuery(CUevent handle)
{
    NEED_EVENT(handle, event);
    CUresult result = sim_capture_check_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&event->lock);
    bool done = event->reached == event->recorded;
    pthread_mutex_unlock(&event->lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API CUresult cuEventSynchronize(CUevent handle)
{
    NEED_EVENT(handle, event);
    CUresult result = sim_capture_check_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    sim_event_hold(event);
    pthread_mutex_lock(&event->lock);
    uint64_t generation = event->recorded;
    pthread_mutex_unlock(&event->lock);
    sim_event_await(event, generation);
    sim_pools_settle(event->context->device);
    sim_event_drop(event);
    return CUDA_SUCCESS;
}

/* A view of an event for measuring; INVALID_HANDLE when it cannot be measured, NOT_READY when not yet. */
static CUresult time_of(struct sim_event *event, uint64_t *time)
{
    if (event == NULL || (event->flags & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&event->lock);
    CUresult result = event->recorded == 0                ? CUDA_ERROR_INVALID_HANDLE
                      : event->reached != event->recorded ? CUDA_ERROR_NOT_READY
                                                          : CUDA_SUCCESS;
    *time = event->time;
    pthread_mutex_unlock(&event->lock);
    return result;
}

SIM_API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    uint64_t from = 0, to = 0;
    SIM_NEED_INIT();
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = time_of(sim_handle_get(start, SIM_EVENT), &from);
    if (result == CUDA_SUCCESS)
        result = time_of(sim_handle_get(end, SIM_EVENT), &to);
    if (result == CUDA_SUCCESS)
        *milliseconds = (float)((double)(int64_t)(to - from) / 1e6);
    return result;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
