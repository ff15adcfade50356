/*
 * The record of a unit: who ran when, who copied over its bus when. A ring in the shared state, under the unit's lock; what
 * tells the truth about shares of a card.
 */
#ifndef SIM_RECORD_H
#define SIM_RECORD_H

#include <stdint.h>

enum { SIM_RECORDS = 1 << 19 }; /* over 50 s of runs of a tenth of a millisecond */

enum sim_record_kind {
    SIM_RAN,        /* had the card: kernels, fills, copies within its memory */
    SIM_SWITCHED,   /* nobody had it: it was being handed to the process */
    SIM_COPIED_IN,  /* had the engine that copies to the card */
    SIM_COPIED_OUT, /* had the one that copies from it */
};

struct sim_record {
    int32_t pid;
    uint32_t kind;
    uint64_t start, end; /* nanoseconds of CLOCK_MONOTONIC */
};

struct sim_log {
    uint64_t count;  /* entries so far */
    uint64_t latest; /* how many there were with the latest run */
    uint64_t lost;   /* entries that end up to this instant may be overwritten */
    struct sim_record entries[SIM_RECORDS];
};

/* Appends an entry; a run that continues the latest run, of the same process, extends it. */
void sim_record_add(struct sim_log *log, struct sim_record entry);

/* The entries that are still there: the first of `known` is number `count - known`. */
uint64_t sim_record_known(const struct sim_log *log);
const struct sim_record *sim_record_at(const struct sim_log *log, uint64_t number);

#endif
