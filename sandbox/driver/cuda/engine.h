/*
 * The engine: what runs this process's work on one device, in submission order over all its streams. Since everything that a
 * piece of work may wait for was submitted before it, one queue keeps every order that streams and events ask for.
 *
 * Kernels run in simulated time (machine/schedule.h): a worker that wakes late finds that they ended when they should have.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "context.h"
#include "copy.h"

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
    SIM_OP_CALL,   /* of the driver's own */
    SIM_OP_MOVE,   /* of managed memory */
    SIM_OP_WAIT_WORD,
    SIM_OP_WRITE_WORD,
};

enum { SIM_TOUCHED = 8 };

/* What a kernel launch is made of. */
struct sim_launch {
    void *function; /* the handle launched */
    unsigned int grid[3], block[3], shared;
    uint64_t ns; /* how long it runs */
    uintptr_t touched[SIM_TOUCHED]; /* managed memory among its parameters; 0 behind the last */
};

/* A word of memory, and what of it is waited for or written. */
struct sim_word {
    uintptr_t address;
    uint64_t value;
    size_t size;
    unsigned int flags;
};

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
        } host;
        struct {
            struct sim_event *event;
            uint64_t generation;
        } event;
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
    /* The engine's own, set by submit. */
    struct sim_stream *stream;
    uint64_t submitted_at, mark;
    bool published;
    struct sim_op *next;
};

/* Puts a copy of the op at the end of the queue. Waits while the stream has 1,024 pieces of work in the queue, as real ones do. */
CUresult sim_engine_submit(struct sim_stream *stream, const struct sim_op *op);
/* Waits for all that was submitted before. */
void sim_engine_drain(struct sim_device *device);
/* Waits for all that was submitted to one stream before. */
void sim_engine_await(struct sim_stream *stream);
bool sim_engine_idle(struct sim_device *device);

/* True in a host function's thread, which must not call the driver. */
bool sim_engine_calling(void);

#endif
