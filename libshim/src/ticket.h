/* Tickets (lane.h): how they are handed out, taken back, and settled.
 *
 * What a ticket was spent on is behind its batch's latest end event until the thread comes the slow way again: when the
 * ticket is spent, or does not fit, or the thread is about to wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_TICKET_H
#define AQ_TICKET_H

#include "lane.h"

#define AQ_TICKET_NS 500000 /* the most a ticket is good for */

/* Good for nothing. A lane's places point to it until they know better. */
extern aq_ticket aq_ticket_void;

/* By the lane's thread, whose ticket it is: from now on it is for this stream. Its batch has been left. */
void aq_ticket_assign(aq_lane *lane, aq_ticket *ticket, CUstream stream);

/* Under the lock: hands out the ticket for the batch that the submission has just joined. */
void aq_ticket_hand_out(aq_lane *lane, const aq_submission *submission);

/* Under the lock: takes back what is left of a batch's ticket; what was spent has no end event behind it yet. */
void aq_ticket_take_back(struct aq_batch *batch);

/* Under the lock, by the lane's thread: the ticket is over, and what it was spent on is known to its batch. */
void aq_ticket_settle_worth(aq_lane *lane, aq_ticket *ticket);
static inline void aq_ticket_settle(aq_lane *lane, aq_ticket *ticket) {
  if (ticket->worth) aq_ticket_settle_worth(lane, ticket);
}

/* A stream is about to capture: every thread's next submission goes the slow way. */
void aq_tickets_stop(void);

/* Before `to` becomes the thread's current context (NULL: which one is not known): the default streams become others. */
void aq_ticket_switch(CUcontext to);

#endif
