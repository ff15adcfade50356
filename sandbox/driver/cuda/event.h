/* Events: marks in the work of a stream, with the time at which they were reached. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "context.h"
#include "graph.h"

struct sim_stream;

struct sim_event {
    CUevent handle;
    struct sim_context *context;
    unsigned int flags;
    _Atomic int holders;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t change;
    uint64_t recorded, reached; /* generations: how often it was recorded, up to which it was reached */
    uint64_t time;              /* of the latest reached, nanoseconds */
    bool watched;               /* a stream waits for it */
    uint64_t marked;            /* the latest generation whose end is known */
    struct sim_moment end;      /* its end */
    struct sim_device *device;  /* of the latest record */
    uint64_t capture;           /* recorded in the capture of this id: only a name for places there; 0: in none */
    struct sim_node_set nodes;
};

void sim_event_hold(struct sim_event *event);
void sim_event_drop(struct sim_event *event);

/* The work before a record is done. */
void sim_event_reached(struct sim_event *event, uint64_t generation, uint64_t time);
/* Waits for a generation. */
void sim_event_await(struct sim_event *event, uint64_t generation);
/* Was a generation reached, and when? If not, the engines are woken when it is. */
bool sim_event_watch(struct sim_event *event, uint64_t generation, uint64_t *time);
/* All before a record is published: it is reached then. */
void sim_event_mark(struct sim_event *event, uint64_t generation, struct sim_moment end);
/* When a generation on a device is reached; false when that is not known yet. */
bool sim_event_end_of(struct sim_event *event, uint64_t generation, const struct sim_device *device, struct sim_moment *end);
/* Makes a stream wait for the event's latest record. */
CUresult sim_event_make_wait(struct sim_event *event, struct sim_stream *stream);

#endif
