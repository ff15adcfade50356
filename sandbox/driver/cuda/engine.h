/*
 * The engine: what runs this process's work on one device. Every stream is a queue of its own; a worker carries out what is at
 * the head of each, once what it waits for is there: events, other streams, the default stream of the context.
 *
 * Kernels run in simulated time (machine/schedule.h): they are published as soon as all before them in their stream is known
 * to end without the worker's doing, and a worker that wakes late finds that they ended when they should have.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "context.h"
#include "copy.h"
#include "cost.h"

struct sim_stream;
struct sim_event;

enum sim_op_kind {
    SIM_OP_EMPTY,
    SIM_OP_KERNEL,
    SIM_OP_COPY,
    SIM_OP_SET,
    SIM_OP_HOST,   /* calls the user back */
    SIM_OP_RECORD, /* of an event */
    SIM_OP_WAIT,   /* for an event */
    SIM_OP_JOIN,   /* waits for another stream */
    SIM_OP_CALL,   /* of the driver's own */
    SIM_OP_MOVE,   /* of managed memory */
    SIM_OP_WAIT_WORD,
    SIM_OP_WRITE_WORD,
};

enum { SIM_TOUCHED = 8 };

/* What a kernel that meets another one does before it runs on: writes a value to a word, and waits for it in another. */
struct sim_meeting {
    uintptr_t arrive, await; /* 0: it meets none */
    uint32_t value;
};

/* What a kernel launch is made of. */
struct sim_launch {
    void *function; /* the handle launched */
    unsigned int grid[3], block[3], shared;
    uint64_t ns; /* how long it runs */
    struct sim_meeting meeting;
    uintptr_t touched[SIM_TOUCHED]; /* managed memory among its parameters; 0 behind the last */
};

/* A word of memory, and what of it is waited for or written. */
struct sim_word {
    uintptr_t address;
    uint64_t value;
    size_t size;
    unsigned int flags;
};

/* How far an op has come that takes several looks. */
enum sim_op_state { SIM_OP_QUEUED, SIM_OP_BEGUN, SIM_OP_OPEN, SIM_OP_ARRIVED, SIM_OP_ENDED };

/* One piece of work. */
struct sim_op {
    enum sim_op_kind kind;
    union {
        struct sim_launch launch;
        struct sim_copy copy;
        struct sim_set set;
        struct {
            CUhostFn run;
            void *data;
            struct sim_op *next; /* to be called after it */
        } host;
        struct {
            struct sim_event *event;
            uint64_t generation;
        } event;
        struct {
            struct sim_stream *stream;
            uint64_t count; /* of its ops that must be over */
        } join;
        struct {
            void (*run)(void *data);
            void *data;
        } call;
        struct {
            uintptr_t base;
            size_t size;
            CUmemLocation location;
        } move;
        struct sim_word word;
    };
    /* The engine's own. */
    struct sim_stream *stream;
    struct sim_cost cost;
    uint64_t number; /* among all of the engine's ops */
    uint64_t submitted_at;
    uint64_t mark;    /* on the card: in the process's time there, where it ends */
    uint64_t over_at; /* on the bus or the host: when it ends */
    enum sim_op_state state;
    struct sim_op *next;
};

/* The ops of one stream that are not over. All of it under the engine's lock. */
/* When published work is over, as far as that is known before. */
struct sim_moment {
    uint64_t mark;  /* in the process's time on the card */
    uint64_t clock; /* and not before this instant: something else was waited for until then */
};

struct sim_queue {
    struct sim_op *head, *tail;
    struct sim_op *unpublished; /* the first that is not published and those behind it; NULL: all are */
    struct sim_stream *next;    /* among those that the worker looks at */
    bool listed;                /* is it among them? */
    struct sim_moment after;    /* what is published next comes after it */
    uint64_t clock;             /* when the latest op that is over ended */
    uint64_t joined;            /* so many ops of the default stream it waits for */
    uint64_t awaited;           /* for so many of its ops the default stream waits */
};

/* Puts a copy of the op at the end of the stream. Waits while the stream has 1,024 pieces of work queued, as real ones do. */
CUresult sim_engine_submit(struct sim_stream *stream, const struct sim_op *op);
/* Waits for all that was submitted before. */
void sim_engine_drain(struct sim_device *device);
/* Waits for all that was submitted to one stream before; to the default stream of a context: to all that it waits for, too. */
void sim_engine_await(struct sim_stream *stream);
/* Would await return at once? */
bool sim_engine_idle(struct sim_stream *stream);
/* Lets the workers of all devices look again: an event was reached. */
void sim_engines_wake(void);

/* True in a host function's thread, which must not call the driver. */
bool sim_engine_calling(void);

#endif
