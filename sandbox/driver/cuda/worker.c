/* The worker: publishes kernels, and carries out what is at the head of each stream once it can be. */
#include "worker.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "../machine/copier.h"
#include "../machine/schedule.h"
#include "event.h"
#include "managed.h"
#include "meeting.h"
#include "memory_op.h"
#include "stream.h"
#include "time_slice.h"

/* How often to look at what nobody announces; and how often a kernel does that has the card meanwhile. */
enum { LOOK_NS = 100000, SPIN_NS = 20000 };

#define BATCH_NS 1000000ULL

static bool concurrent(const struct sim_engine *engine)
{
    return engine->device->card->concurrent;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void sim_worker_kick(struct sim_engine *engine)
{
    engine->kicks++;
    pthread_cond_signal(&engine->wake);
}

/* ---- publishing: all of it under the lock ---- */

/* Since when an op that has all that it waits for could run. */
static uint64_t ready_at(const struct sim_op *op)
{
    return later(op->stream->queue.clock, op->submitted_at);
}

/* When all that is ahead of an op in its stream ends, as far as that is known before it does. */
static struct sim_moment end_before(const struct sim_op *op)
{
    const struct sim_moment *after = &op->stream->queue.after;
    return (struct sim_moment){after->mark, later(after->clock, ready_at(op))};
}

static void come_after(struct sim_queue *queue, struct sim_moment end)
{
    queue->after.mark = later(queue->after.mark, end.mark);
    queue->after.clock = later(queue->after.clock, end.clock);
}

static struct sim_work work_of(const struct sim_op *op)
{
    struct sim_moment before = end_before(op);
    return (struct sim_work){op->cost.ns, op->cost.need, before.mark, before.clock};
}

static bool meets(const struct sim_op *op)
{
    return op->kind == SIM_OP_KERNEL && op->launch.meeting.await != 0;
}

/* What it takes to bring its memory is known only when it is about to run. */
static bool awaits_memory(const struct sim_op *op)
{
    return op->kind == SIM_OP_KERNEL && op->launch.touched[0] != 0 && op->state == SIM_OP_QUEUED;
}

static bool publish_work(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_queue *queue = &op->stream->queue;
    struct sim_work work = work_of(op);
    op->mark = sim_schedule_publish(engine->device->unit, engine->device->slot, &engine->plan, &work, concurrent(engine));
    if (op->mark == SIM_NEVER)
        return false;
    queue->after.mark = op->mark;
    return true;
}

/* What is behind the event's record comes after what was before it, if it is known when that ends. */
static bool pass_wait(const struct sim_engine *engine, const struct sim_op *op)
{
    struct sim_moment end;
    if (!sim_event_end_of(op->event.event, op->event.generation, engine->device, &end))
        return false;
    come_after(&op->stream->queue, end);
    return true;
}

/* The same for another stream, if nothing was submitted to it since. */
static bool pass_join(const struct sim_op *op)
{
    const struct sim_stream *other = op->join.stream;
    const struct sim_queue *queue = &other->queue;
    bool over = other->finished >= op->join.count;
    if (!over && (queue->unpublished != NULL || other->submitted != op->join.count))
        return false;
    come_after(&op->stream->queue, (struct sim_moment){over ? 0 : queue->after.mark, later(queue->clock, queue->after.clock)});
    return true;
}

/* False: what is behind the op must wait until it is over. */
static bool pass_other(const struct sim_engine *engine, struct sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_RECORD:
        sim_event_mark(op->event.event, op->event.generation, end_before(op));
        return true;
    case SIM_OP_WAIT:
        return pass_wait(engine, op);
    case SIM_OP_JOIN:
        return pass_join(op);
    case SIM_OP_HOST:
    case SIM_OP_WAIT_WORD:
        return false;
    default:
        return op->cost.place == SIM_PLACE_NONE;
    }
}

/* Publishes an op if it is for the card; false as above. */
static bool pass(struct sim_engine *engine, struct sim_op *op)
{
    if (meets(op) || awaits_memory(op))
        return false;
    return op->cost.place == SIM_PLACE_CARD ? publish_work(engine, op) : pass_other(engine, op);
}

/* Publishes what can be; returns whether anything was. */
static bool publish(struct sim_engine *engine, struct sim_queue *queue)
{
    const struct sim_op *before = queue->unpublished;
    while (queue->unpublished != NULL && pass(engine, queue->unpublished))
        queue->unpublished = queue->unpublished->next;
    return queue->unpublished != before;
}

/* At the end: the worker may be at work in the midst of the list. */
static void list(struct sim_engine *engine, struct sim_stream *stream)
{
    struct sim_stream **at = &engine->streams;
    while (*at != NULL)
        at = &(*at)->queue.next;
    *at = stream;
    stream->queue.next = NULL;
    stream->queue.listed = true;
    sim_stream_hold(stream);
}

void sim_worker_append(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_queue *queue = &op->stream->queue;
    op->number = ++engine->submitted;
    op->submitted_at = sim_now();
    if (queue->head == NULL)
        queue->head = op;
    else
        queue->tail->next = op;
    queue->tail = op;
    if (queue->unpublished == NULL) {
        queue->unpublished = op;
        publish(engine, queue);
    }
    if (!queue->listed)
        list(engine, op->stream);
    sim_worker_kick(engine);
}

/* ---- ops at the head: over or not? Under the lock, which some give up meanwhile. If not, *when is when to look again ---- */

static bool host_over(struct sim_engine *engine, struct sim_op *op)
{
    if (op->state == SIM_OP_QUEUED) {
        op->state = SIM_OP_BEGUN;
        sim_caller_take(engine, op);
    }
    op->stream->queue.clock = later(op->stream->queue.clock, op->over_at);
    return op->state == SIM_OP_ENDED;
}

static bool wait_over(struct sim_op *op)
{
    uint64_t time = 0;
    bool over = sim_event_watch(op->event.event, op->event.generation, &time);
    if (over)
        op->stream->queue.clock = later(op->stream->queue.clock, time);
    return over;
}

static bool join_over(struct sim_op *op)
{
    const struct sim_stream *other = op->join.stream;
    if (other->finished < op->join.count)
        return false;
    op->stream->queue.clock = later(op->stream->queue.clock, other->queue.clock);
    return true;
}

static bool word_over(struct sim_op *op, uint64_t *when)
{
    uint64_t now = sim_now();
    *when = now + LOOK_NS;
    if (!sim_memory_op_holds(&op->word))
        return false;
    op->stream->queue.clock = now;
    return true;
}

/* When bytes are over the bus that begin at an instant. */
static uint64_t over_bus(struct sim_engine *engine, enum sim_direction direction, uint64_t begin, uint64_t bytes)
{
    uint64_t ns = sim_bus_ns(engine->device, bytes);
    return ns == 0 ? begin : sim_copier_take(engine->device->unit, engine->device->slot, direction, begin, ns);
}

/* The kernel holds the card while what it lacks comes over the bus, after what leaves for it. */
static void run_kernel(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_traffic sum = {0};
    for (int i = 0; i < SIM_TOUCHED && op->launch.touched[i] != 0; i++) {
        struct sim_traffic one = sim_managed_touch(engine->device, op->launch.touched[i]);
        sum.in += one.in;
        sum.out += one.out;
    }
    uint64_t ready = op->stream->queue.clock;
    uint64_t left = over_bus(engine, SIM_OUT, ready, sum.out);
    op->cost.ns += over_bus(engine, SIM_IN, left, sum.in) - ready;
}

static void run_set(struct sim_engine *engine, const struct sim_set *set)
{
    if (sim_managed_any())
        sim_managed_touch(engine->device, (uintptr_t)set->target);
    sim_set_run(set);
}

/* Without the lock: what an op does, whatever time it takes. */
static void carry_out(struct sim_engine *engine, struct sim_op *op)
{
    switch (op->kind) {
    case SIM_OP_KERNEL:
        run_kernel(engine, op);
        break;
    case SIM_OP_COPY:
        sim_copy_run(&op->copy);
        break;
    case SIM_OP_SET:
        run_set(engine, &op->set);
        break;
    case SIM_OP_RECORD:
        sim_event_reached(op->event.event, op->event.generation, op->stream->queue.clock);
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
    default:
        break;
    }
}

/* Gives up the lock meanwhile. */
static void begin(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_queue *queue = &op->stream->queue;
    queue->clock = ready_at(op);
    if (op->cost.place == SIM_PLACE_BUS_IN || op->cost.place == SIM_PLACE_BUS_OUT)
        op->over_at = sim_copier_take(engine->device->unit, engine->device->slot,
                                      op->cost.place == SIM_PLACE_BUS_IN ? SIM_IN : SIM_OUT, queue->clock, op->cost.ns);
    op->state = SIM_OP_BEGUN;
    pthread_mutex_unlock(&engine->lock);
    carry_out(engine, op);
    pthread_mutex_lock(&engine->lock);
}

static bool mark_over(struct sim_engine *engine, struct sim_op *op, uint64_t *when)
{
    struct sim_queue *queue = &op->stream->queue;
    if (!sim_schedule_reached(engine->device->unit, engine->device->slot, op->mark, concurrent(engine), when))
        return false;
    queue->clock = later(queue->clock, *when);
    return true;
}

/* How much later the last of the kernels ends that are behind an op in its stream, up to a while: nobody is told of the others. */
static uint64_t batch_ns(const struct sim_op *op)
{
    const struct sim_op *unpublished = op->stream->queue.unpublished, *last = op;
    while (last->next != NULL && last->next != unpublished && last->next->cost.place == SIM_PLACE_CARD &&
           last->next->mark - op->mark < BATCH_NS)
        last = last->next;
    return last->mark - op->mark;
}

/* The card ends work in its own time. */
static bool card_over(struct sim_engine *engine, struct sim_op *op, uint64_t *when)
{
    struct sim_queue *queue = &op->stream->queue;
    publish(engine, queue); /* if it awaited its memory */
    *when = sim_now() + LOOK_NS;
    if (queue->unpublished == op)
        return false;
    bool over = mark_over(engine, op, when);
    *when += batch_ns(op);
    return over;
}

/* Begins to meet as soon as it fits on the card: from then on the process has work that goes on and on. */
static void open_meeting(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_work work = work_of(op);
    op->mark = sim_schedule_open(engine->device->unit, engine->device->slot, &engine->plan, &work, concurrent(engine));
    if (op->mark != SIM_NEVER)
        op->state = SIM_OP_OPEN;
}

/* What the kernel does while the process has the card: it comes, and looks for the other one, again and again. */
static void meet(struct sim_engine *engine, struct sim_op *op)
{
    struct sim_work work = work_of(op);
    if (op->state == SIM_OP_OPEN)
        sim_meeting_arrive(&op->launch.meeting);
    op->state = SIM_OP_ARRIVED;
    if (!sim_meeting_holds(&op->launch.meeting))
        return;
    op->mark = sim_schedule_close(engine->device->unit, engine->device->slot, &engine->plan, &work, concurrent(engine));
    op->stream->queue.after.mark = op->mark;
    op->state = SIM_OP_ENDED;
}

static bool meeting_over(struct sim_engine *engine, struct sim_op *op, uint64_t *when)
{
    if (op->state == SIM_OP_BEGUN)
        open_meeting(engine, op);
    *when = sim_now() + SPIN_NS;
    if (op->state == SIM_OP_BEGUN)
        return false;
    if (op->state != SIM_OP_ENDED) {
        if (!sim_schedule_runs(engine->device->unit, engine->device->slot, op->mark, concurrent(engine), when))
            return false;
        meet(engine, op);
        *when = sim_now() + SPIN_NS;
    }
    return op->state == SIM_OP_ENDED && mark_over(engine, op, when);
}

static bool bus_over(struct sim_op *op, uint64_t *when)
{
    *when = op->over_at;
    if (sim_now() < op->over_at)
        return false;
    op->stream->queue.clock = op->over_at;
    return true;
}

/* What the engine does itself. */
static bool work_over(struct sim_engine *engine, struct sim_op *op, uint64_t *when)
{
    if (op->state == SIM_OP_QUEUED)
        begin(engine, op);
    if (op->cost.place == SIM_PLACE_NONE)
        return true;
    if (meets(op))
        return meeting_over(engine, op, when);
    return op->cost.place == SIM_PLACE_CARD ? card_over(engine, op, when) : bus_over(op, when);
}

static bool over(struct sim_engine *engine, struct sim_op *op, uint64_t *when)
{
    *when = SIM_NEVER;
    switch (op->kind) {
    case SIM_OP_HOST:
        return host_over(engine, op);
    case SIM_OP_WAIT:
        return wait_over(op);
    case SIM_OP_JOIN:
        return join_over(op);
    case SIM_OP_WAIT_WORD:
        return word_over(op, when);
    default:
        return work_over(engine, op, when);
    }
}

/* ---- the thread ---- */

/* Gives up what an op held. */
static void drop(struct sim_op *op)
{
    if (op->kind == SIM_OP_RECORD || op->kind == SIM_OP_WAIT)
        sim_event_drop(op->event.event);
    else if (op->kind == SIM_OP_JOIN)
        sim_stream_drop(op->join.stream);
    free(op);
}

static void finish(struct sim_engine *engine, struct sim_stream *stream)
{
    struct sim_queue *queue = &stream->queue;
    struct sim_op *op = queue->head;
    if (queue->unpublished == op)
        queue->unpublished = op->next;
    queue->head = op->next;
    if (op->kind != SIM_OP_JOIN)
        stream->finished++;
    publish(engine, queue);
    pthread_cond_broadcast(&engine->done);
    pthread_mutex_unlock(&engine->lock);
    drop(op);
    pthread_mutex_lock(&engine->lock);
}

/*
 * Publishes and carries out what can be, of each stream; false if that was nothing: *next is when something will be. A stream
 * that waits for another one is published as soon as that one's end is known, so that no late wake-up adds to the wait.
 */
static bool look(struct sim_engine *engine, uint64_t *next)
{
    bool moved = false;
    struct sim_stream **at = &engine->streams;
    while (*at != NULL) {
        struct sim_stream *stream = *at;
        uint64_t when = SIM_NEVER;
        moved |= publish(engine, &stream->queue);
        for (; stream->queue.head != NULL && over(engine, stream->queue.head, &when); moved = true)
            finish(engine, stream);
        if (stream->queue.head != NULL) {
            *next = when < *next ? when : *next;
            at = &stream->queue.next;
            continue;
        }
        *at = stream->queue.next;
        stream->queue.listed = false;
        sim_stream_drop(stream);
    }
    return moved;
}

static void sleep_until(struct sim_engine *engine, uint64_t when)
{
    struct timespec t = {(time_t)(when / 1000000000ULL), (long)(when % 1000000000ULL)};
    if (when == SIM_NEVER)
        pthread_cond_wait(&engine->wake, &engine->lock);
    else
        pthread_cond_timedwait(&engine->wake, &engine->lock, &t);
}

void *sim_worker_run(void *argument)
{
    struct sim_engine *engine = argument;
    prctl(PR_SET_TIMERSLACK, 1UL); /* kernels are short */
    sim_time_slice_shorten();      /* and a card waits for no CPU */
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        uint64_t kicks = engine->kicks, next = SIM_NEVER;
        if (!look(engine, &next) && kicks == engine->kicks)
            sleep_until(engine, next);
    }
    return NULL;
}
