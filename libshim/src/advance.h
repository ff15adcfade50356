/* Advances: memory that a process is charged for before it needs it, so that processes of one tenant which allocate and
 * free at the same time do not pass one cache line to and fro.
 *
 * In use is what a slot is charged less its advance. Its owner allocates from the advance and frees into it by a
 * compare-and-swap of one word of its own; the tallies stay as they are, and so a kill leaves nothing to be completed:
 * whoever collects the slot gives back its charge, the advance with it.
 *
 * The words, per slot and card:
 *
 *   now    bytes:47 | open:1 | count:16   holds while the slot's last change is number `count`
 *   next   the same, closed               what the change under way (number `count`) shall leave
 *
 *   state                              who may change it
 *   open:   now.count = last change    the owner takes and gives; anybody closes it
 *   closed: now.count = last change    nobody: the bytes stay unused until the slot's next change
 *   next:   now.count is older,        anybody brings `next` into `now`: the owner opens it at once, others close it
 *           next.count = last change
 *   none:   neither
 *
 * Every change of the slot's charge closes the advance, writes `next`, and then takes the closed bytes in and the next
 * advance out in the same step as what was asked for: the compare-and-swap of the card's tally (ledger.c). As that makes
 * the slot's count another one, `now` ends and `next` begins at that very instant, wherever the owner is stopped or killed.
 *
 * Who is short of memory closes advances, its own and others', and may then go beyond the limit by what they hold. That
 * holds until its compare-and-swap of the tally: a closed advance ends by a change of its slot only, each change makes the
 * tally another word, and then the swap fails. So
 *
 *   tally - closed advances <= limit     after every addition,
 *   in use = tally - all advances,
 *
 * nothing that fits is refused because of an advance, and nobody waits for its owner. What is closed under an owner is
 * taken in by its next change.
 *
 * A process has an advance once it sees that another has changed the tally since it did: who is alone never pays for one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ADVANCE_H
#define AQ_ADVANCE_H

#include "aliquot_usage.h"

/* Whether the owner has no advance, and no trace of one. */
static inline bool aq_advance_is_none(const aq_usage_page *page, int slot, int card) {
  if (slot >= AQ_ADVANCE_SLOTS || card >= AQ_ADVANCE_CARDS || !aq_usage_has_advances(page)) return true;
  const aq_advance *words = &aq_usage_advances_of(page, slot)->cards[card];
  return !(__atomic_load_n(&words->now, __ATOMIC_RELAXED) | __atomic_load_n(&words->next, __ATOMIC_RELAXED));
}

/* Takes `bytes` from the owner's advance, or gives them back to it. False: it does not hold them, or not so many more;
 * or the tally is beyond `limit`, and each request is to be looked at. */
bool aq_advance_take(aq_usage_page *page, int slot, int card, uint64_t bytes, uint64_t limit);
bool aq_advance_give(aq_usage_page *page, int slot, int card, uint64_t bytes);

/* Whether the owner's advance has never been lower since it began: then more is in use than before. Once each time. */
bool aq_advance_fell(aq_usage_page *page, int slot, int card);

/* Closes advances of all slots but one, until they hold `wanted` bytes or there are no more. What it returns holds while the
 * tally is the one that the caller has read (and completed) before. */
uint64_t aq_advance_close_others(aq_usage_page *page, int but, int card, uint64_t wanted);

/* The part of an advance in one change of its slot. */
typedef struct {
  aq_advance *words; /* NULL: this slot has none on this card */
  bool exists;
  bool was_open;
  uint64_t bytes; /* closed: they are not in use until the change is made */
  uint64_t size;  /* of the last advance when it began */
  uint64_t word;
  unsigned count; /* the slot's last change */
} aq_advance_turn;

/* Closes the slot's advance for the change that follows number `count`. */
aq_advance_turn aq_advance_begin(aq_usage_page *page, int slot, int card, unsigned count);

/* Says what that change leaves: before the swap of the tally, as often as need be. */
void aq_advance_propose(aq_usage_page *page, int slot, int card, aq_advance_turn *turn, uint64_t bytes);

/* Opens it: after the change has reached the slot's tally. */
void aq_advance_settle(const aq_advance_turn *turn, uint64_t bytes);

/* What an advance may be where `room` bytes are left. */
uint64_t aq_advance_size(uint64_t room);

/* Of a slot that changes hands, with no charge left but what others keep: there are none. */
void aq_advance_forget(aq_usage_page *page, int slot);

#endif
