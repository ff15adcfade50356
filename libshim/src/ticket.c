/* What becomes of tickets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ticket.h"

#include "batch.h"
#include "core_limit.h"
#include "cost.h"
#include "lease.h"
#include "monitor.h"
#include "stream.h"

static const uint32_t no_word = AQ_GATE_CLOSED; /* of which there are no tickets */
aq_ticket aq_ticket_void = {.word = &no_word, .stream = AQ_NO_STREAM};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void stop(aq_ticket *ticket) { __atomic_store_n(&ticket->word, &no_word, __ATOMIC_RELAXED); }

/* ---- places ---- */

static void forget_place(aq_lane *lane, uint32_t place) {
  lane->payer[place]->places[place / 64] &= ~(UINT64_C(1) << place % 64);
  lane->payer[place] = &aq_ticket_void;
  lane->key[place] = 0;
}

/* What was submitted from here becomes part of the batch of its ticket, and its cost what is known of it by now. */
static void settle_place(aq_lane *lane, uint32_t place) {
  const void *what = lane->what[place];
  aq_batch *batch = aq_batch_of(lane->payer[place]);
  if (batch) aq_batch_add_members(batch, what, (uint64_t)lane->cost[place], (uint32_t)lane->count[place]);
  lane->count[place] = 0;
  lane->cost[place] = (int64_t)aq_cost(what);
  if (!lane->cost[place] || lane->cost[place] > AQ_TICKET_NS) forget_place(lane, place);
}

static void remember(aq_lane *lane, aq_ticket *ticket, const aq_submission *submission, int64_t cost) {
  uint32_t place = aq_lane_place(submission->key);
  if (lane->count[place]) settle_place(lane, place);
  if (lane->key[place]) forget_place(lane, place);
  lane->key[place] = submission->key;
  lane->what[place] = submission->what;
  lane->payer[place] = ticket;
  lane->cost[place] = cost;
  ticket->places[place / 64] |= UINT64_C(1) << place % 64;
}

static void for_places(aq_lane *lane, const aq_ticket *ticket, void (*act)(aq_lane *, uint32_t)) {
  for (uint32_t word = 0; word < AQ_KNOWN / 64; word++)
    for (uint64_t bits = ticket->places[word]; bits; bits &= bits - 1)
      act(lane, word * 64 + (uint32_t)__builtin_ctzll(bits));
}

static void settle_used(aq_lane *lane, uint32_t place) {
  if (lane->count[place]) settle_place(lane, place);
}

/* ---- tickets ---- */

void aq_ticket_assign(aq_lane *lane, aq_ticket *ticket, CUstream stream) {
  for_places(lane, ticket, forget_place);
  *ticket = aq_ticket_void;
  ticket->stream = stream;
}

/* What each place of a ticket costs now, and no less than `least`: so it pays for no more launches than it may. */
static void price(aq_lane *lane, const aq_ticket *ticket, int64_t least) {
  for (uint32_t word = 0; word < AQ_KNOWN / 64; word++)
    for (uint64_t bits = ticket->places[word]; bits; bits &= bits - 1) {
      uint32_t place = word * 64 + (uint32_t)__builtin_ctzll(bits);
      int64_t cost = (int64_t)aq_cost(lane->what[place]);
      if (cost) lane->cost[place] = cost > least ? cost : least;
      else forget_place(lane, place);
    }
}

void aq_ticket_hand_out(aq_lane *lane, const aq_submission *submission) {
  aq_ticket *ticket = submission->ticket;
  aq_batch *batch = submission->batch;
  int64_t cost = (int64_t)aq_cost(submission->what), worth = smaller(AQ_TICKET_NS, aq_batch_room(batch));
  uint32_t launches = aq_batch_room_for_launches(batch);
  bool counted = launches < AQ_ANY_LAUNCHES;
  if (counted) worth = smaller(worth, launches * cost);
  if (!cost || cost > worth || !submission->key) return;
  remember(lane, ticket, submission, cost);
  if (counted) price(lane, ticket, worth / launches);
  aq_batch_reserve(batch, ticket, worth, counted ? launches : 0);
  ticket->worth = ticket->seen = worth;
  ticket->epoch = submission->epoch;
  __atomic_store_n(&ticket->left, worth, __ATOMIC_RELAXED);
  __atomic_store_n(&ticket->word, submission->word, __ATOMIC_RELAXED);
}

/* Less than nothing is left while its thread finds that it is worth too little (aq_ticket_spend). */
void aq_ticket_take_back(aq_batch *batch) {
  aq_ticket *ticket = batch->ticket;
  if (!ticket) return;
  stop(ticket);
  int64_t left = __atomic_load_n(&ticket->left, __ATOMIC_RELAXED);
  ticket->settled = left > 0 ? left : 0;
  aq_batch_unreserve(batch, ticket->settled);
}

/* Work that slipped past while another thread took the ticket back. */
static void settle_slip(const aq_ticket *ticket, aq_batch *batch, uint64_t slip) {
  if (batch) aq_batch_add_unmeasured(batch, slip);
  else aq_charge_estimate(ticket->card, slip, aq_now_ns());
}

void aq_ticket_settle_worth(aq_lane *lane, aq_ticket *ticket) {
  aq_batch *batch = aq_batch_of(ticket);
  if (batch) aq_ticket_take_back(batch);
  int64_t left = __atomic_load_n(&ticket->left, __ATOMIC_RELAXED);
  if (left == ticket->worth) return;
  for_places(lane, ticket, settle_used);
  if (ticket->settled > left) settle_slip(ticket, batch, (uint64_t)(ticket->settled - left));
  __atomic_store_n(&ticket->left, 0, __ATOMIC_RELAXED);
  ticket->worth = ticket->settled = ticket->seen = 0;
}

/* ---- when other things happen ---- */

void aq_tickets_stop(void) {
  if (!aq_lane_any()) return;
  aq_monitor_lock();
  aq_batch_recall();
  aq_monitor_unlock();
}

void aq_ticket_switch(CUcontext to) {
  CUcontext from = aq_lane_mine->context;
  if (from && from != to) aq_submit_flush();
}
