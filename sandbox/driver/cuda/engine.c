/* One worker thread and one queue for each device of the process. */
#include "engine.h"

#include <signal.h>
#include <stdlib.h>

#include "../machine/schedule.h"
#include "event.h"
#include "managed.h"
#include "memory_op.h"
#include "stream.h"

enum { STREAM_DEPTH = 1024 };

struct sim_engine {
    struct sim_device *device;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the worker */
    pthread_cond_t done; /* for those who wait for work */
    struct sim_op *head, *tail;
    unsigned int barriers; /* ops in the queue behind which nothing is published yet */
    uint64_t submitted, finished;
    uint64_t clock; /* when the latest op ended */
};

static _Thread_local bool calling;

bool sim_engine_calling(void)
{
    return calling;
}

static bool concurrent(const struct sim_engine *engine)
{
    return engine->device->card->concurrent;
}

/* Ops that end when somebody else says so: the kernels behind them are not ready before. */
static bool is_barrier(const struct sim_op *op)
{
    return op->kind == SIM_OP_HOST || op->kind == SIM_OP_WAIT || op->kind == SIM_OP_WAIT_WORD;
}

/* ---- running ---- */

/* Under the lock. Kernels up to the next barrier become the card's. */
static void publish(struct sim_engine *engine, struct sim_op *op)
{
    for (; op != NULL && !is_barrier(op); op = op->next) {
        if (op->kind != SIM_OP_KERNEL || op->published)
            continue;
        op->mark = sim_schedule_publish(engine->device->unit, engine->device->slot, op->launch.ns, concurrent(engine));
        op->published = true;
    }
}

static void wait_until(struct sim_engine *engine, uint64_t when)
{
    struct timespec t = {(time_t)(when / 1000000000ULL), (long)(when % 1000000000ULL)};
    pthread_cond_timedwait(&engine->wake, &engine->lock, &t);
}

/* Under the lock, which it gives up meanwhile. Kernels end in the card's time. */
static void run_kernel(struct sim_engine *engine, struct sim_op *op)
{
    uint64_t when = 0;
    if (op->launch.touched[0] != 0) {
        pthread_mutex_unlock(&engine->lock);
        for (int i = 0; i < SIM_TOUCHED && op->launch.touched[i] != 0; i++)
            sim_managed_touch(engine->device, op->launch.touched[i]);
        pthread_mutex_lock(&engine->lock);
    }
    while (!sim_schedule_reached(engine->device->unit, engine->device->slot, op->mark, concurrent(engine), &when))
        wait_until(engine, when);
    if (when > engine->clock)
        engine->clock = when;
}

/* Is there work of another stream behind an op? */
static bool others_behind(const struct sim_op *op)
{
    for (const struct sim_op *next = op->next; next != NULL; next = next->next)
        if (next->stream != op->stream)
            return true;
    return false;
}

/*
 * Under the lock. There is one queue, so the work that would write the word may be behind the one that waits for it: when other
 * streams have work the wait is over.
 */
static void await_word(struct sim_engine *engine, const struct sim_op *op)
{
    enum { LOOK_NS = 100000 };
    while (!sim_memory_op_holds(&op->word) && !others_behind(op))
        wait_until(engine, sim_now() + LOOK_NS);
}

static void call_host(const struct sim_op *op)
{
    calling = true;
    op->host.run(op->host.data);
    calling = false;
}

/* Without the lock: everything but kernels. */
static void run_other(struct sim_engine *engine, struct sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_COPY:
        sim_copy_run(&op->copy);
        break;
    case SIM_OP_SET:
        if (sim_managed_any())
            sim_managed_touch(engine->device, (uintptr_t)op->set.target);
        sim_set_run(&op->set);
        break;
    case SIM_OP_HOST:
        call_host(op);
        break;
    case SIM_OP_RECORD:
        sim_event_reached(op->event.event, op->event.generation, engine->clock);
        break;
    case SIM_OP_WAIT:
        sim_event_await(op->event.event, op->event.generation);
        break;
    case SIM_OP_CALL:
        op->call.run(op->call.data);
        break;
    case SIM_OP_MOVE:
        sim_managed_move(op->move.base, op->move.size, op->move.location);
        break;
    case SIM_OP_WRITE_WORD:
        sim_memory_op_write(&op->word);
        break;
    case SIM_OP_WAIT_WORD:
    case SIM_OP_EMPTY:
    case SIM_OP_KERNEL:
        break;
    }
}

static void run(struct sim_engine *engine, struct sim_op *op)
{
    if (op->kind == SIM_OP_KERNEL) {
        run_kernel(engine, op);
        return;
    }
    if (op->kind == SIM_OP_WAIT_WORD)
        await_word(engine, op);
    if (op->submitted_at > engine->clock)
        engine->clock = op->submitted_at;
    pthread_mutex_unlock(&engine->lock);
    run_other(engine, op);
    pthread_mutex_lock(&engine->lock);
    if (is_barrier(op)) {
        engine->barriers--;
        engine->clock = sim_now();
        publish(engine, op->next);
    }
}

/* Gives up what an op held. */
static void drop(struct sim_op *op)
{
    if (op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT)
        sim_event_drop(op->event.event);
    sim_stream_drop(op->stream);
    free(op);
}

static void finish(struct sim_engine *engine)
{
    struct sim_op *op = engine->head;
    engine->head = op->next;
    if (engine->head == NULL)
        engine->tail = NULL;
    engine->finished++;
    op->stream->finished++;
    pthread_cond_broadcast(&engine->done);
    pthread_mutex_unlock(&engine->lock);
    drop(op);
    pthread_mutex_lock(&engine->lock);
}

static void *work(void *argument)
{
    struct sim_engine *engine = argument;
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        while (engine->head == NULL)
            pthread_cond_wait(&engine->wake, &engine->lock);
        run(engine, engine->head);
        finish(engine);
    }
    return NULL;
}

/* ---- making ---- */

static void init_conditions(struct sim_engine *engine)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, &attr);
    pthread_cond_init(&engine->done, &attr);
    pthread_condattr_destroy(&attr);
}

/* The worker takes no signals: they are the program's. */
static bool start_worker(struct sim_engine *engine)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, work, engine) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

static struct sim_engine *new_engine(struct sim_device *device)
{
    struct sim_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->device = device;
    init_conditions(engine);
    if (start_worker(engine))
        return engine;
    free(engine);
    return NULL;
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

/* ---- submitting and waiting ---- */

static void append(struct sim_engine *engine, struct sim_op *op)
{
    if (engine->tail != NULL)
        engine->tail->next = op;
    else
        engine->head = op;
    engine->tail = op;
    engine->submitted++;
    op->submitted_at = sim_now();
    if (is_barrier(op))
        engine->barriers++;
    else if (engine->barriers == 0)
        publish(engine, op);
    pthread_cond_signal(&engine->wake);
}

CUresult sim_engine_submit(struct sim_stream *stream, const struct sim_op *op)
{
    struct sim_engine *engine = engine_of(stream->context->device);
    struct sim_op *copy = malloc(sizeof *copy);
    if (engine == NULL || copy == NULL) {
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *op;
    copy->stream = stream;
    copy->published = false;
    copy->next = NULL;
    sim_stream_hold(stream);
    if (op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT)
        sim_event_hold(op->event.event);
    pthread_mutex_lock(&engine->lock);
    while (stream->submitted - stream->finished >= STREAM_DEPTH)
        pthread_cond_wait(&engine->done, &engine->lock);
    stream->submitted++;
    append(engine, copy);
    pthread_mutex_unlock(&engine->lock);
    return CUDA_SUCCESS;
}

void sim_engine_drain(struct sim_device *device)
{
    struct sim_engine *engine = existing_engine(device);
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    uint64_t target = engine->submitted;
    while (engine->finished < target)
        pthread_cond_wait(&engine->done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
}

void sim_engine_await(struct sim_stream *stream)
{
    struct sim_engine *engine = existing_engine(stream->context->device);
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    uint64_t target = stream->submitted;
    while (stream->finished < target)
        pthread_cond_wait(&engine->done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
}

bool sim_engine_idle(struct sim_device *device)
{
    struct sim_engine *engine = existing_engine(device);
    if (engine == NULL)
        return true;
    pthread_mutex_lock(&engine->lock);
    bool idle = engine->finished == engine->submitted;
    pthread_mutex_unlock(&engine->lock);
    return idle;
}
