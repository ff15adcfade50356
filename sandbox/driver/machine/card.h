/*
 * The state of the cards, shared by every process of the simulated machine: who holds how much memory, who has work
 * queued, who ran when. It lives in one mapped file, $SIMGPU_DIR/state.
 *
 * A *unit* is what has memory and runs kernels: a card, or a MIG instance of one. A *slot* is one process on one unit.
 *
 * Memory is counted without a lock, in the slots alone (the used bytes of a unit are their sum): a process that is stopped or
 * killed anywhere blocks nobody. The schedule (schedule.h) is under the unit's robust mutex.
 */
#ifndef SIM_CARD_H
#define SIM_CARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "record.h"
#include "scenario.h"

enum {
    SIM_UNITS = SIM_MAX_CARDS * (1 + SIM_MAX_MIG),
    SIM_SLOTS = 256,
    SIM_SPANS = 64,
    SIM_SHARES = 256,
    SIM_NO_SLOT = -1,
};

/* An interval in which a slot's work ran, and how much of its work had been done before. Nanoseconds of CLOCK_MONOTONIC. */
struct sim_span {
    uint64_t start, end, done_before;
};

/* One process on one unit. */
struct sim_slot {
    _Atomic int32_t pid;     /* 0: free */
    _Atomic uint64_t birth;  /* the process's start time in clock ticks since boot: tells reused pids apart */
    _Atomic uint32_t image;  /* the program it runs: after an exec the card has nothing of it any more */
    _Atomic uint64_t memory; /* bytes charged */
    _Atomic uint64_t aside;  /* bytes that a checkpoint put on the host */
    _Atomic uint32_t stage;  /* of a checkpoint; 0: running */
    uint64_t managed;        /* bytes of memory that may be taken off the unit; this and all below under the unit's lock */
    uint64_t taken;          /* of these, bytes that were and of which the process does not know yet; see resident.h */
    uint64_t used_at;        /* when the process used such memory last */
    uint64_t demand;         /* nanoseconds of work published so far */
    uint64_t done;           /* of these, nanoseconds run in turns that are over */
    uint64_t ready_at;       /* since when it has waited for a turn */
    bool running;            /* its turn is now */
    uint64_t run_start;
    struct sim_span spans[SIM_SPANS]; /* the latest turns, a ring */
    uint64_t span_count;
};

/* Memory that several processes hold; see share.h. */
struct sim_share {
    uint64_t name; /* 0: free */
    uint64_t bytes;
    int payer; /* the slot that has the bytes among its own */
    uint16_t holds[SIM_SLOTS];
};

struct sim_unit {
    pthread_mutex_t lock;
    _Atomic uint32_t slots_used; /* slots at and beyond this index were never claimed */
    _Atomic unsigned int accounting; /* NVML keeps accounts of processes */
    int32_t last;                /* the slot that had the latest turn */
    uint64_t switch_ns;          /* what a handover takes, as the scenario has it */
    uint64_t free_at;            /* when the latest turn ended */
    uint64_t copier_free_at[2];  /* when the engines that copy in and out are free; see copier.h */
    struct sim_slot slots[SIM_SLOTS];
    uint64_t last_share;
    struct sim_share shares[SIM_SHARES];
    struct sim_log log;
};

struct sim_state {
    char magic[16];
    struct sim_unit units[SIM_UNITS];
};

/* The machine as one process sees it. */
struct sim_machine {
    struct sim_scenario scenario;
    struct sim_state *state;
    char directory[3072];
};

/* Opens the machine in `directory`; false (and one line on stderr) when that is no simulated machine. */
bool sim_machine_open(struct sim_machine *machine, const char *directory);
void sim_machine_close(struct sim_machine *machine);

/* Index of the unit of a card, and of one of its MIG instances. */
int sim_unit_of_card(int card);
int sim_unit_of_mig(int card, int mig);

/* The current process's slot on a unit; SIM_NO_SLOT when all are taken. Idempotent. */
int sim_slot_claim(struct sim_unit *unit);
/* Gives the slot back with all its memory and queued work. */
void sim_slot_release(struct sim_unit *unit, int slot);
/* Frees the slots of processes that are gone. */
void sim_unit_collect(struct sim_unit *unit);
bool sim_slot_alive(const struct sim_slot *slot);

/* Bytes in use by all processes. */
uint64_t sim_memory_used(struct sim_unit *unit);
/* Charges bytes to a slot if they fit under `limit` (bytes for all processes together). */
bool sim_memory_charge(struct sim_unit *unit, int slot, uint64_t bytes, uint64_t limit);
void sim_memory_release(struct sim_unit *unit, int slot, uint64_t bytes);

void sim_unit_lock(struct sim_unit *unit);
void sim_unit_unlock(struct sim_unit *unit);

/* CLOCK_MONOTONIC, nanoseconds. */
uint64_t sim_now(void);

#endif
