/* The arbiter of a node: one thread that runs the scheduler (scheduler.h) on tenants' files.
 *
 * The part between the cdef markers is also read by cffi. All of it may be called from any thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ARBITER_H
#define AQ_ARBITER_H

#include "scheduler.h"

/* cdef: begin */
typedef struct aq_arbiter aq_arbiter;
typedef struct aq_client aq_client; /* a tenant with its files */

typedef struct {
  aq_account accounts[16]; /* in the order of its terms */
  aq_trust trust;
  const char *damage; /* what is wrong with its pages; NULL: nothing */
} aq_client_state;

#define AQ_LATENESS_BOUNDS 9
extern const uint64_t aq_lateness_bounds_ns[9];

/* How often the thread woke by no more than each bound late, and at the end by more than all. */
typedef struct {
  uint64_t counts[10];
  uint64_t sum_ns;
} aq_lateness;

/* NULL: no memory. `polls`: as on a kernel that cannot wait for several futexes. */
aq_arbiter *aq_arbiter_new(const aq_rules *rules, int polls);
void aq_arbiter_free(aq_arbiter *arbiter); /* stopped, and without clients */

/* 0, or an errno value. `real_time`: with real-time priority, or EPERM where that is not allowed. */
int aq_arbiter_start(aq_arbiter *arbiter, int real_time);
void aq_arbiter_stop(aq_arbiter *arbiter);

/* 0, or an errno value: EINVAL, what is there is no page of ours; ENODEV, it does not have such a card. Clients of one group, which
 * is not 0, have their cards at the same time, unless they have the same cards. */
int aq_arbiter_enter(aq_arbiter *arbiter, const char *control, const char *usage, uint32_t group, const aq_terms *terms,
                     uint32_t count, aq_client **client);
void aq_arbiter_change(aq_arbiter *arbiter, aq_client *client, const aq_terms *terms);
void aq_arbiter_exempt(aq_arbiter *arbiter, aq_client *client, int exempt); /* as aq_scheduler_exempt; of one without a group */
void aq_arbiter_group(aq_arbiter *arbiter, aq_client *client, uint32_t group); /* of another group from now on */
void aq_arbiter_leave(aq_arbiter *arbiter, aq_client *client);
void aq_arbiter_doubt(aq_arbiter *arbiter, aq_client *client, int doubted); /* not doubted: damage is forgiven, too */
void aq_arbiter_absent(aq_arbiter *arbiter, aq_client *client, uint32_t entities); /* as aq_scheduler_absent */
void aq_arbiter_quantum(aq_arbiter *arbiter, const char *card, uint64_t lease_ns);
void aq_arbiter_state(aq_arbiter *arbiter, aq_client *client, aq_client_state *state);
void aq_arbiter_lateness(aq_arbiter *arbiter, aq_lateness *lateness); /* since the arbiter was made */
/* cdef: end */

#endif
