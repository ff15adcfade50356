/* Lanes: what a thread may submit without asking, and how it finds that out.
 *
 * The slow way (compute.c) waits at the gate, announces and measures, and then hands the calling thread a ticket: leave
 * to submit so much work, in nanoseconds of its expected time, to one stream without asking again. A lane holds the
 * tickets of its thread, one a stream, and remembers what each work on each stream costs. The fast way is a look-up, one
 * look at the gate's word and arithmetic: no lock, no clock, no call. A ticket is good while the gate's word is what it was
 * when it was handed out; whoever changes limits, or ends a lease, changes that word.
 *
 * A lane belongs to its thread. Of its tickets others read `left` and write `word`, each by itself: relaxed. Whoever
 * takes a ticket back does not wait for its thread; a launch that slips past is found by the thread, which settles
 * what it spent since.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LANE_H
#define AQ_LANE_H

#include <stdbool.h>

#include "compute.h"
#include "cost.h"
#include "hooks.h"

#define AQ_STREAMS 8 /* to which a thread has tickets at the same time */
#define AQ_KNOWN 256 /* works whose cost a lane remembers, each on its stream */

#define AQ_NO_STREAM ((CUstream)UINTPTR_MAX)

typedef struct aq_ticket {
  const uint32_t *word; /* the gate's word; of a ticket that was taken back, one that is good for nothing */
  int64_t left;
  uint32_t epoch; /* the word's value for which the ticket is good */
  int card;
  int64_t worth;   /* what it was good for */
  int64_t settled; /* under the lock: what was left when it was taken back */
  int64_t seen;    /* what was left when the thread last came the slow way, to whichever stream */
  CUstream stream; /* AQ_NO_STREAM: of none yet */
  bool waits;      /* before what comes next the stream waits for something else than its own work */
  struct aq_batch *batch; /* the thread's batch on it, its own while the generation is what it was */
  uint64_t generation;
  uint64_t places[AQ_KNOWN / 64]; /* those that point here, a bit each */
} aq_ticket;

typedef struct aq_lane {
  /* By place: what stands there, the ticket that pays for it, nanoseconds of each (at most AQ_TICKET_NS), and how many were
   * submitted since the ticket was handed out. Arrays of one width, because a launch then needs one address, and with six of
   * its arguments in registers it has few to spare. */
  uint64_t key[AQ_KNOWN];
  aq_ticket *payer[AQ_KNOWN];
  int64_t cost[AQ_KNOWN];
  uint64_t count[AQ_KNOWN];
  const void *what[AQ_KNOWN];
  aq_ticket tickets[AQ_STREAMS];
  uint32_t used;     /* tickets that ever had a stream: the first ones */
  uint32_t next_out; /* the ticket that goes to another stream when all have one */
  uint64_t visits;   /* to the slow way; atomic: others read it, relaxed */
  CUcontext context; /* of its batches; NULL: it has none */
  struct aq_lane *next; /* in the list of lanes without a thread */
} aq_lane;

/* Initial-exec: one load, where any other way is a call from inside each launch. It takes static thread-local storage, of
 * which a library that is loaded late may find little: so it is one pointer, and nothing else of ours is there. */
extern __thread aq_lane *aq_lane_mine __attribute__((tls_model("initial-exec")));

/* Stands for a work on a stream, as the program names it in a flavour. For one key to mean two streams, two works would have to
 * lie further apart than these do, by this factor; and no grid is as wide as one flavour is from the other. Zero is no key:
 * aq_ticket_hand_out() remembers nothing by it. */
static inline uint64_t aq_lane_key(const void *what, CUstream name, int flavour) {
  return (uint64_t)(uintptr_t)what + (uint64_t)(uintptr_t)name * UINT64_C(0x61c88647) -
         (flavour == AQ_STREAM_PER_THREAD ? UINT64_C(0x80000000) : 0);
}

/* Where a lane remembers it, if it does. */
static inline uint32_t aq_lane_place(uint64_t key) { return (uint32_t)key * UINT32_C(0x9e3779b1) >> 24; }

/* Takes the cost from what is left of the calling thread's ticket. False: it is worth less, and keeps what it has; another
 * thread may see it without, for a moment. */
static inline bool aq_ticket_spend(int64_t *left, int64_t cost) {
#ifdef __x86_64__
  bool short_of; /* one instruction, which a compiler makes of no atomic load and store */
  __asm__ volatile("subq %2, %0" : "+m"(*left), "=@ccs"(short_of) : "r"(cost));
  if (__builtin_expect(!short_of, 1)) return true;
  __atomic_store_n(left, *left + cost, __ATOMIC_RELAXED);
  return false;
#else
  int64_t rest = __atomic_load_n(left, __ATOMIC_RELAXED) - cost;
  if (rest < 0) return false;
  __atomic_store_n(left, rest, __ATOMIC_RELAXED);
  return true;
#endif
}

/* Whether a ticket of the calling thread pays for the work. One does nearly always where there is a cap, so each
 * instruction counts. */
static inline bool aq_lane_pays(aq_lane *lane, uint64_t key) {
  uint32_t place = aq_lane_place(key);
  if (__builtin_expect(lane->key[place] != key, 0)) return false;
  aq_ticket *ticket = lane->payer[place];
  if (__atomic_load_n(__atomic_load_n(&ticket->word, __ATOMIC_RELAXED), __ATOMIC_RELAXED) != ticket->epoch) return false;
  if (!aq_ticket_spend(&ticket->left, lane->cost[place])) return false;
  lane->count[place]++;
  return true;
}

/* Whether work may be submitted at once. */
static inline bool aq_gate_pass(const void *what, CUstream name, int flavour) {
  return __builtin_expect(aq_lane_pays(aq_lane_mine, aq_lane_key(what, name, flavour)), 1) || aq_gate_free();
}

/* The same of aq_kernel(function, grid), which lies in memory: added last it takes an instruction less. */
static inline bool aq_gate_pass_with(const void *function, const uint32_t grid[2], CUstream name, int flavour) {
  uint64_t key = aq_lane_key(aq_kernel(function, 0), name, flavour);
  __asm__("" : "+r"(key));
  key += aq_width_and_height(grid);
#ifdef __x86_64__
  register uint64_t sum __asm__("r10") = key; /* else a parameter is moved out of the way */
  __asm__("" : "+r"(sum));
  key = sum;
#endif
  return __builtin_expect(aq_lane_pays(aq_lane_mine, key), 1) || aq_gate_free();
}

/* The calling thread's lane, made at its first need; NULL when there is no memory for one. */
aq_lane *aq_lane_own(void);

/* Whether the calling thread has a lane. */
bool aq_lane_exists(void);

/* Whether any thread ever had one. */
bool aq_lane_any(void);

/* By the lane's thread: the ticket of a stream, or one that may become its. */
aq_ticket *aq_lane_ticket(aq_lane *lane, CUstream stream);

/* By the lane's thread: what comes next on a stream comes behind a wait. It is not noted where all tickets are in use. */
void aq_lane_waits(aq_lane *lane, CUstream stream);

/* What changes whenever the lane's thread submits anything. */
uint64_t aq_lane_mark(const aq_lane *lane);

/* In the child of a fork. */
void aq_lanes_forget(void);

static_assert(AQ_KNOWN == 1 << (32 - 24), "aq_lane_place takes as many bits");

#endif
