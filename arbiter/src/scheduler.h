/* The scheduler by which the tenants of a node's cards have their time: pure arithmetic, told what is the case and when.
 *
 * Whoever drives it reports what the tenants say of themselves, takes a step, and opens and closes gates as the leases then
 * stand. A step names the instant of the next one, if nothing is reported before.
 *
 * The part between the cdef markers is also read by cffi.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SCHEDULER_H
#define AQ_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

/* cdef: begin */
/* What one card of a tenant is worth to it. */
typedef struct {
  char card[64];         /* UUID */
  uint32_t share_bp;     /* hundredths of a percent of the card's time that are the tenant's own; at least 1 */
  uint32_t most_percent; /* that it may have when others leave theirs */
  uint32_t priority;     /* 0-9; of a tenant's cards the highest counts */
} aq_terms;

/* How long things may take, in nanoseconds. */
typedef struct {
  uint64_t lease_ns;
  uint64_t least_ns;        /* of a lease, before it is ended for somebody who works in short bursts */
  uint64_t lent_ns;         /* a lease of time that nobody claims */
  uint64_t idle_ns;         /* a holder that does nothing for so long makes way */
  uint64_t apart_ns;        /* a card that is idle for so long, while its tenant works on another, is leased by itself */
  uint64_t start_ns;        /* so long it may take to begin */
  uint64_t drain_ns;        /* so long what is in flight may outlast its expected end before others are let in beside it */
  uint64_t window_ns;       /* of work in flight */
  uint64_t alone_window_ns; /* where nobody else has work */
  uint64_t priority_window_ns; /* where somebody of a higher priority may come */
} aq_rules;

/* What a tenant's processes say they have to do with a card. */
typedef struct {
  uint64_t used_ns;  /* had of the card's time since the last report */
  uint64_t ends_ns;  /* when the last of what is in flight is expected to be over */
  uint32_t waiting;  /* at the gate */
  uint32_t in_flight;
  uint32_t moving;   /* of those with work in flight one still says so: it is not stopped */
} aq_report;

/* How far a report is believed. */
typedef enum {
  AQ_TRUSTED,
  AQ_DOUBTED, /* not what it says to have used: it pays for the time that it holds the card */
  AQ_BLIND,   /* nothing: it is thought to want the card always */
} aq_trust;

/* What holds for one card of a tenant. */
typedef struct {
  uint32_t open;
  uint32_t serial; /* another number whenever what was asked for before must be asked for again */
  uint64_t end_ns;
  uint64_t window_ns;
} aq_lease;

/* Of a card's time, since the tenant entered. */
typedef struct {
  uint64_t guaranteed_ns; /* due to the tenant while it had work */
  uint64_t used_ns;
  uint64_t lent_ns;       /* of that, had beyond its share */
  uint64_t held_ns;       /* leased to it */
  uint32_t waiting;
} aq_account;

typedef struct aq_scheduler aq_scheduler;
typedef struct aq_tenant aq_tenant;

aq_rules aq_scheduler_rules(void); /* the usual ones */

aq_scheduler *aq_scheduler_new(const aq_rules *rules, uint64_t now_ns); /* NULL: no memory */
void aq_scheduler_free(aq_scheduler *sched);

/* NULL: no memory. The terms are of different cards, at most AQ_MAX_CARDS. Its entities are numbered in their order. */
aq_tenant *aq_scheduler_enter(aq_scheduler *sched, const aq_terms *terms, uint32_t count);

/* Entities go to another tenant, behind those that it has, or with NULL to a new one, with all that is due to them and all they owe.
 * Those that were behind them move up, and a tenant that has none left is gone. Returns where they are now, the number of the first
 * in `first`. NULL: nothing has changed, because the other tenant would have more than AQ_MAX_CARDS entities then, or two at one
 * card, or there is no memory. */
aq_tenant *aq_scheduler_move(aq_scheduler *sched, aq_tenant *tenant, uint32_t *first, uint32_t count, aq_tenant *to);

/* Entities leave, and with the last of them their tenant. Those behind them move up. */
void aq_scheduler_leave(aq_scheduler *sched, aq_tenant *tenant, uint32_t first, uint32_t count);

/* Of entities from `first` on: other terms of the same cards, how far what they say is believed, and at which of them the driver
 * sees nothing of what is said to be in flight, a bit each. */
void aq_scheduler_change(aq_tenant *tenant, uint32_t first, const aq_terms *terms, uint32_t count);
void aq_scheduler_trust(aq_tenant *tenant, uint32_t first, uint32_t count, aq_trust trust);
void aq_scheduler_absent(aq_tenant *tenant, uint32_t first, uint32_t count, uint32_t absent);
/* From the next step on a tenant is let in whenever time is due to it, or nobody else wants its cards, beside the leases of others:
 * contexts take turns in slices then. That is so only while what it says is believed. */
void aq_scheduler_exempt(aq_tenant *tenant, int exempt);
/* How late threads of this node are woken. A holder's are too, so it may have more work in flight then, and hold the card for longer. */
void aq_scheduler_late(aq_scheduler *sched, uint64_t late_ns);
int aq_scheduler_quantum(aq_scheduler *sched, const char *card, uint64_t lease_ns); /* 0: as usual. False: nobody has the card */

void aq_scheduler_report(aq_scheduler *sched, aq_tenant *tenant, uint32_t entity, const aq_report *report, uint64_t now_ns);
void aq_scheduler_rang(aq_tenant *tenant); /* a process of its began to wait or to work, or has finished */

/* For a while nobody listened, and each tenant went by its own clock: no lease of before is good any more, and what is in
 * flight, of whomever, is waited for as after a lease. */
void aq_scheduler_interrupt(aq_scheduler *sched, uint64_t now_ns);

uint64_t aq_scheduler_step(aq_scheduler *sched, uint64_t now_ns);

aq_lease aq_scheduler_lease(const aq_tenant *tenant, uint32_t entity);
aq_account aq_scheduler_account(const aq_tenant *tenant, uint32_t entity);
int aq_scheduler_holds(const aq_tenant *tenant);   /* has a lease, or has not drained after one, or is let in without */
int aq_scheduler_expects(const aq_scheduler *sched, const aq_tenant *tenant); /* all that it may ring for now: steps come in time for it */
int aq_scheduler_suspect(const aq_scheduler *sched, const aq_tenant *tenant); /* something of it should have happened by now: does it live? */
/* cdef: end */

#endif
