/* What carries out the work of one device. All but the device is under the lock. */
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "../machine/plan.h"
#include "engine.h"

struct sim_engine {
    struct sim_device *device;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the worker */
    pthread_cond_t call; /* for the thread that calls the user back */
    pthread_cond_t done; /* for those who wait for work */
    uint64_t kicks;      /* how often the worker was told to look again */
    struct sim_stream *streams; /* those that have ops */
    uint64_t submitted;
    struct sim_plan plan; /* of the kernels published */
    struct sim_op *called, *last_called; /* to call back, in order */
};

/* Puts an op at the end of its stream. */
void sim_worker_append(struct sim_engine *engine, struct sim_op *op);
/* Makes the worker look again. */
void sim_worker_kick(struct sim_engine *engine);

/* The two threads: of an engine. */
void *sim_worker_run(void *engine);
void *sim_caller_run(void *engine);

/* Hands a host function over to be called. */
void sim_caller_take(struct sim_engine *engine, struct sim_op *op);

#endif
