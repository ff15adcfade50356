/* The rules of waiting. A submission waits while the tenant owes time or has no lease, and while so much of unknown or known
 * length is in flight that closing the gate would mean nothing.
 *
 * Work that waits for other work of the same process (a spinning kernel, a collective) gets its partner: what is in flight
 * and makes no progress keeps nothing out. A lease may be long in coming, but then nothing of the process is in flight.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"

#include "batch.h"
#include "cost.h"
#include "lane.h"
#include "lease.h"
#include "monitor.h"
#include "stream.h"

#define STALL_NS UINT64_C(100000000) /* nothing finished for so long, nor was expected to: let one more in */
#define PARTNER_NS UINT64_C(20000000) /* the same on another card: a collective may have begun there */
#define WAITS_NS UINT64_C(2000000)   /* the same in a stream that waits for the host, a word or another stream, */
#define MUCH_NS UINT64_C(64000000)   /* until it has so much in flight */
#define OTHER_NS UINT64_C(500000)    /* so long work of unknown length keeps out that of other streams, */
#define LATE_NS UINT64_C(2000000)    /* and so long work that is late */
#define UNSEEN_NS UINT64_C(1000000000)
#define LOOK_NS UINT64_C(20000000)   /* look again at a limit that may have changed */
#define POLL_NS UINT64_C(100000)     /* what was expected to be over is not yet */
#define IDLE_NS UINT64_C(1000000)    /* so long without work, and an arbiter may have turned away */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

aq_passage aq_gate_arrive(const aq_core_context *context, const aq_submission *submission) {
  return (aq_passage){.card = context->card,
                      .context = context,
                      .stream = aq_stream_identity(submission->stream, aq_lane_mine),
                      .cost = aq_cost(submission->what),
                      .began_ns = aq_now_ns()};
}

/* ---- what must be over, or looked at, before anything joins it ---- */

/* Until when work of unknown length keeps others out: those of its stream until it is over. */
static uint64_t unknown_until(const aq_queue *queue, bool is_own) {
  if (!queue->unknown_ns || (queue->waits && !is_own)) return 0;
  return is_own ? UINT64_MAX : queue->unknown_ns + OTHER_NS;
}

/* The same for work that takes longer than it should. */
static uint64_t late_until(const aq_queue *queue, bool is_own, uint64_t now) {
  uint64_t late = aq_batch_late_ns(queue);
  if (queue->waits || now <= late) return 0;
  return is_own ? UINT64_MAX : late + LATE_NS;
}

/* Until when nothing goes: what is in flight is of unknown length, or takes longer than it should, or it is so many launches that
 * much would depend on what each takes. */
static uint64_t look_until(const aq_passage *p) {
  const aq_in_flight *flight = &aq_flights[p->card];
  uint64_t until = 0;
  if (flight->oldest && flight->launches >= flight->most_launches) return UINT64_MAX;
  for (const aq_queue *queue = flight->queues; queue; queue = queue->next) {
    until = later(until, unknown_until(queue, queue == p->queue));
    if (p->leased) until = later(until, late_until(queue, queue == p->queue, p->now_ns));
  }
  return until;
}

/* ---- room ---- */

/* Whether the card may be idle before an end is seen: by what the like of it took at the least, there is little behind what runs.
 * Launches of one function can take now long, now short. Then twice the window may be in flight, by what they take at the most. */
static bool may_run_dry(const aq_in_flight *flight, uint64_t together) {
  const aq_batch *oldest = flight->oldest;
  while (oldest && oldest->queue->waits) oldest = oldest->next;
  if (!oldest) return false;
  uint64_t behind = flight->estimate - flight->spread - (oldest->estimate - oldest->spread);
  return behind < flight->window_ns / 4 && together <= 2 * flight->window_ns;
}

static uint64_t begins_ns(const aq_passage *p) { return aq_flight_begins_ns(&aq_flights[p->card], p->queue, p->now_ns); }

/* The instant at which work may join what is in flight: a window of short work, or one long kernel when the one before it is nearly
 * over, or what ends no later on its stream than others do on theirs. What a kernel takes varies: where two of them fill the window
 * the third is not kept out by a thousandth, nor one of a pair by the other's being older. */
static uint64_t room_at(const aq_passage *p) {
  const aq_in_flight *flight = &aq_flights[p->card];
  uint64_t cost = p->cost, window = flight->window_ns, until = look_until(p);
  uint64_t ahead = aq_flight_ahead(flight, p->queue), together = ahead + cost;
  if (until > p->now_ns) return until;
  if (!ahead || (cost && together <= window + window / 8)) return p->now_ns;
  uint64_t begins = begins_ns(p);
  if (cost && (may_run_dry(flight, together) || begins + cost <= aq_flight_ends_ns(flight))) return p->now_ns;
  if (!cost || together > 2 * cost + cost / 8) return UINT64_MAX;
  return begins > window ? begins - window : p->now_ns;
}

/* ---- what makes no progress ---- */

/* The instant at which what is in flight on a card is taken to make no progress, by a look that was late enough to have seen
 * some: our threads may be kept from running. No look at all will do after a while. */
static uint64_t standstill_at(const aq_passage *p, int card, uint64_t patience) {
  const aq_in_flight *flight = &aq_flights[card];
  uint64_t instant = later(later(flight->progress_ns, p->began_ns), aq_flight_ends_ns(flight)) + patience;
  if (p->now_ns < instant || aq_monitor_looked_ns() >= instant || p->now_ns > instant + UNSEEN_NS) return instant;
  return p->now_ns + POLL_NS;
}

static uint64_t stalled_at(const aq_passage *p) {
  const aq_queue *own = p->queue;
  if (!own || !own->waits) return standstill_at(p, p->card, STALL_NS);
  bool soon = own->estimate < MUCH_NS && !aq_lease_is_closed(p->gate);
  return later(p->began_ns, own->progress_ns) + (soon ? WAITS_NS : STALL_NS);
}

/* The same of the process's other cards. */
static uint64_t partner_stalled_at(const aq_passage *p) {
  uint64_t instant = UINT64_MAX;
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    if (card != p->card && aq_flights[card].count) instant = sooner(instant, standstill_at(p, card, PARTNER_NS));
  return instant;
}

static uint64_t room(const aq_passage *p) {
  uint64_t instant = room_at(p);
  return instant > p->now_ns ? sooner(instant, stalled_at(p)) : instant;
}

/* ---- the tenant's own clock ---- */

static uint64_t opens_by_clock(aq_passage *p) {
  uint64_t open_at = aq_clock_open_at(aq_core_usage(p->card));
  p->is_long = open_at > p->now_ns;
  return p->is_long ? sooner(open_at, p->now_ns + LOOK_NS) : room(p);
}

/* ---- an arbiter's lease ---- */

static bool outlasts_lease(const aq_passage *p) {
  return (int64_t)(begins_ns(p) + p->cost) > aq_flights[p->card].lease_end_ns;
}

static uint64_t opens_by_lease(aq_passage *p) {
  const aq_in_flight *flight = &aq_flights[p->card];
  uint64_t look = p->now_ns + LOOK_NS;
  if (aq_lease_is_closed(p->gate)) {
    p->is_long = p->for_lease = true;
    return sooner(look, flight->count ? stalled_at(p) : partner_stalled_at(p));
  }
  if (!flight->count && !p->queue) return p->now_ns;
  uint64_t open_at = room(p);
  if (open_at > p->now_ns || stalled_at(p) <= p->now_ns || !outlasts_lease(p)) return open_at;
  p->is_long = p->for_lease = true;
  return sooner(later(begins_ns(p) - flight->spread, p->now_ns + POLL_NS), look);
}

/* ---- passing ---- */

static uint32_t most_launches(const aq_in_flight *flight) {
  uint64_t launches = flight->window_ns / AQ_LEAST_LAUNCH_NS >> flight->distrust;
  return launches ? (uint32_t)launches : 1;
}

/* Reads the terms. Announced first, as lease.h says: what is in flight already is announced. */
static void ask(aq_passage *p) {
  aq_in_flight *flight = &aq_flights[p->card];
  if (!flight->ends_ns) flight->ends_ns = aq_now_ns(); /* nothing was submitted yet; 0 would be read as hours from now */
  if (!flight->count) aq_batch_publish(p->card, true);
  p->queue = aq_queue_of(p->card, p->context, p->stream);
  p->gate = aq_lease_gate(p->card);
  p->now_ns = aq_now_ns();
  p->leased = aq_lease_holds(p->card, p->gate, p->now_ns);
  p->is_long = p->for_lease = false;
  flight->window_ns = p->leased ? aq_lease_window_ns(p->card) : AQ_WINDOW_NS;
  flight->lease_end_ns = p->leased ? aq_lease_end_ns(p->card) : INT64_MAX;
  flight->most_launches = p->leased ? most_launches(flight) : AQ_ANY_LAUNCHES;
}

static void go(aq_passage *p) {
  aq_in_flight *flight = &aq_flights[p->card];
  if (p->waits) flight->waiting--;
  p->waits = false;
  if (!flight->count && aq_core_leasable(p->card) && p->now_ns > flight->progress_ns + IDLE_NS) aq_lease_ring(p->card);
}

bool aq_gate_keeps(aq_passage *p) {
  ask(p);
  bool holds = aq_enforcement() == AQ_ENFORCE_ENFORCE && aq_core_cap(p->card);
  p->until_ns = !holds ? p->now_ns : p->leased ? opens_by_lease(p) : opens_by_clock(p);
  bool keeps = p->until_ns > p->now_ns;
  if (!keeps) go(p);
  return keeps;
}

/* Each value of the gate's word is rung for once, and each time that somebody begins to wait. */
static void tell_arbiter(aq_passage *p) {
  aq_in_flight *flight = &aq_flights[p->card];
  bool is_news = !flight->waiting || flight->rung_for != p->gate;
  if (!p->waits) flight->waiting++;
  p->waits = true;
  aq_batch_publish(p->card, false);
  if (!p->for_lease || !is_news) return;
  flight->rung_for = p->gate;
  aq_lease_ring(p->card);
}

void aq_gate_wait(aq_passage *p) {
  tell_arbiter(p);
  if (p->for_lease) {
    aq_monitor_unlock();
    aq_lease_wait(p->card, p->gate, p->until_ns);
    aq_monitor_lock();
  } else {
    aq_monitor_wait(p->until_ns);
  }
  __atomic_fetch_add(&aq_core_usage(p->card)->throttled_ns, aq_now_ns() - p->now_ns, __ATOMIC_RELAXED);
}

void aq_gate_wait_too(aq_passage *p) { tell_arbiter(p); }

/* A page that nobody leases has its own word; none comes of what went through a closed gate. */
void aq_gate_ticket(const aq_passage *p, aq_submission *submission) {
  if (!aq_core_leasable(p->card)) return;
  submission->word = aq_lease_word(p->card);
  submission->epoch = aq_lease_is_closed(p->gate) ? AQ_GATE_CLOSED : p->gate;
}
