/* Engines, one for each device of the process: making them, submitting to them, waiting for them. */
#include "engine.h"

#include <signal.h>
#include <stdlib.h>

#include "event.h"
#include "stream.h"
#include "worker.h"

enum { STREAM_DEPTH = 1024 };

/* ---- making ---- */

static void init_conditions(struct sim_engine *engine)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, &attr);
    pthread_cond_init(&engine->call, &attr);
    pthread_cond_init(&engine->done, &attr);
    pthread_condattr_destroy(&attr);
}

static bool start(void *(*run)(void *engine), struct sim_engine *engine)
{
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, run, engine) == 0;
    if (started)
        pthread_detach(thread);
    return started;
}

/* The threads take no signals: they are the program's. */
static bool start_threads(struct sim_engine *engine)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = start(sim_caller_run, engine) && start(sim_worker_run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static struct sim_engine *new_engine(struct sim_device *device)
{
    struct sim_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->device = device;
    init_conditions(engine);
    return start_threads(engine) ? engine : NULL;
}

static struct sim_engine *engine_of(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    if (device->engine == NULL)
        device->engine = new_engine(device);
    struct sim_engine *engine = device->engine;
    pthread_mutex_unlock(&device->lock);
    return engine;
}

static struct sim_engine *existing_engine(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct sim_engine *engine = device->engine;
    pthread_mutex_unlock(&device->lock);
    return engine;
}

void sim_engines_wake(void)
{
    for (int i = 0; i < sim_device_count(); i++) {
        struct sim_engine *engine = existing_engine(sim_device(i));
        if (engine == NULL)
            continue;
        pthread_mutex_lock(&engine->lock);
        sim_worker_kick(engine);
        pthread_mutex_unlock(&engine->lock);
    }
}

/* ---- submitting ---- */

static struct sim_op *copy_of(const struct sim_op *op, struct sim_stream *stream)
{
    struct sim_op *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *op;
    copy->stream = stream;
    copy->cost = sim_cost_of(op, stream->context->device);
    copy->over_at = 0;
    copy->state = SIM_OP_QUEUED;
    copy->next = NULL;
    return copy;
}

/* Under the lock: makes a stream wait for all that was submitted to another one. */
static bool join(struct sim_engine *engine, struct sim_stream *stream, struct sim_stream *other)
{
    struct sim_op *op = copy_of(&(struct sim_op){.kind = SIM_OP_JOIN, .join = {other, other->submitted}}, stream);
    if (op == NULL)
        return false;
    sim_stream_hold(other);
    sim_worker_append(engine, op);
    return true;
}

static bool is_blocking(const struct sim_stream *stream)
{
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* Does the default stream of a context wait for this one, and this one for it? */
static bool belongs_to(const struct sim_stream *stream, const struct sim_stream *standard)
{
    return stream != standard && stream->context == standard->context && is_blocking(stream);
}

/* Under the lock: the default stream waits for all blocking ones of its context. */
static bool join_all(struct sim_engine *engine, struct sim_stream *standard)
{
    for (struct sim_stream *other = engine->streams; other != NULL; other = other->queue.next) {
        if (!belongs_to(other, standard) || other->queue.head == NULL || other->queue.awaited == other->submitted)
            continue;
        if (!join(engine, standard, other))
            return false;
        other->queue.awaited = other->submitted;
    }
    return true;
}

/* Under the lock: a blocking stream waits for the default one of its context. */
static bool join_standard(struct sim_engine *engine, struct sim_stream *stream)
{
    struct sim_stream *standard = atomic_load(&stream->context->legacy);
    if (standard == NULL || standard->queue.head == NULL || stream->queue.joined == standard->submitted)
        return true;
    stream->queue.joined = standard->submitted;
    return join(engine, stream, standard);
}

static bool join_implicitly(struct sim_engine *engine, struct sim_stream *stream)
{
    if (stream->is_default)
        return join_all(engine, stream);
    return !is_blocking(stream) || join_standard(engine, stream);
}

CUresult sim_engine_submit(struct sim_stream *stream, const struct sim_op *op)
{
    struct sim_engine *engine = engine_of(stream->context->device);
    struct sim_op *copy = copy_of(op, stream);
    if (engine == NULL || copy == NULL) {
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&engine->lock);
    while (stream->submitted - stream->finished >= STREAM_DEPTH)
        pthread_cond_wait(&engine->done, &engine->lock);
    bool joined = join_implicitly(engine, stream);
    if (joined) {
        if (op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT)
            sim_event_hold(op->event.event);
        stream->submitted++;
        sim_worker_append(engine, copy);
    } else {
        free(copy);
    }
    pthread_mutex_unlock(&engine->lock);
    return joined ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- waiting ---- */

/* Under the lock: is anything unfinished that was submitted up to a number, to a stream and all that it waits for (NULL: any)? */
static bool unfinished(const struct sim_engine *engine, const struct sim_stream *of, uint64_t number)
{
    for (const struct sim_stream *stream = engine->streams; stream != NULL; stream = stream->queue.next) {
        bool concerned = of == NULL || stream == of || (of->is_default && belongs_to(stream, of));
        if (concerned && stream->queue.head != NULL && stream->queue.head->number <= number)
            return true;
    }
    return false;
}

static void await(struct sim_engine *engine, const struct sim_stream *of)
{
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    uint64_t number = engine->submitted;
    while (unfinished(engine, of, number))
        pthread_cond_wait(&engine->done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
}

void sim_engine_drain(struct sim_device *device)
{
    await(existing_engine(device), NULL);
}

void sim_engine_await(struct sim_stream *stream)
{
    await(existing_engine(stream->context->device), stream);
}

bool sim_engine_idle(struct sim_stream *stream)
{
    struct sim_engine *engine = existing_engine(stream->context->device);
    if (engine == NULL)
        return true;
    pthread_mutex_lock(&engine->lock);
    bool idle = !unfinished(engine, stream, engine->submitted);
    pthread_mutex_unlock(&engine->lock);
    return idle;
}
