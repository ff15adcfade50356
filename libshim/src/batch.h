/* Batches: work that one thread submitted to one stream in one go, between two events.
 *
 * An open batch belongs to its thread, which alone records its events; the monitor takes over when the end event is
 * reached. All its work lies before its end event, but for what its ticket was spent on since. Everything here is called
 * under the one lock of compute.c, and asks the driver nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_BATCH_H
#define AQ_BATCH_H

#include "aliquot_pages.h"
#include "compute.h"
#include "event.h"
#include "flight.h"

#define AQ_BATCH_NS UINT64_C(1000000) /* a batch takes no more work than this */
#define AQ_BATCH_COUNT 256
#define AQ_BATCH_MEMBERS 32

/* However short they are, no more launches are in flight under a lease than of this length: should they all turn out to take
 * longer than ever, so many times that is what runs on when the gate is closed. */
#define AQ_LEAST_LAUNCH_NS UINT64_C(31250)
#define AQ_SURPRISE_NS UINT64_C(500000) /* by which work takes longer than twice what was expected when it is late */
#define AQ_PIPELINE 4 /* batches in which they come, lest the card waits for us to see the end of one */

typedef struct {
  const void *what;
  uint64_t cost; /* estimated, each */
  uint32_t count;
} aq_batch_member;

typedef enum { AQ_BATCH_FREE, AQ_BATCH_OPEN } aq_batch_state;

typedef struct aq_batch {
  aq_batch_state state;
  uint64_t generation; /* changes when the batch stops being its thread's */
  aq_core_context *context;
  int card;
  CUstream stream;
  aq_queue *queue;     /* of the stream, while the batch is open */
  aq_events events;    /* of `events_of`, kept from batch to batch */
  CUcontext events_of; /* NULL: it has none */
  uint32_t others;     /* streams that had something in flight when it was opened */
  bool may_wait;         /* its stream waits for something else before it */
  bool begun;            /* the start event was seen to be reached */
  bool fresh;            /* the start event is still to be recorded */
  bool recorded;         /* the end event was recorded at least once */
  uint32_t in_call;      /* the owner is between begin and end */
  uint32_t submissions;
  uint64_t estimate;     /* nanoseconds of all its work */
  uint64_t spread;       /* by how much less it may take, by what its works took at the least */
  uint64_t unmeasured;   /* of these, what came after the latest end event */
  struct aq_lane *owner;    /* NULL: nobody's any more */
  struct aq_ticket *ticket; /* that is out for it */
  int64_t worth;            /* nanoseconds of that, in flight as if they were spent */
  uint32_t ticket_launches; /* that it is good for, if they are counted */
  uint32_t launches;        /* without those, */
  uint32_t most_launches;   /* after which it is full; AQ_ANY_LAUNCHES: they are not counted */
  uint64_t seen_mark;       /* its owner's at the monitor's last look, */
  uint64_t moved_ns;        /* and when that was last another than before */
  uint64_t caught_up_ns;   /* when the card was last seen to have done soon what had been submitted of it */
  uint64_t opened_ns;
  uint64_t last_ns;      /* when its latest submission began */
  uint64_t others_ns;    /* what other processes have charged of time before it, as far as is known */
  uint64_t began_ns;     /* when its start event was recorded, */
  uint64_t submitted_ns; /* and all that is before its end event was submitted */
  bool sample;           /* one submission, to know what it takes by itself: nothing joins it */
  bool abandoned;        /* the driver refused its only submission */
  bool unknown;          /* it is one submission of unknown length */
  uint64_t unnamed;        /* nanoseconds of work that is no member, for want of places */
  struct aq_batch *next;   /* in its card's queue, by age; or idle */
  uint32_t member_count;
  aq_batch_member members[AQ_BATCH_MEMBERS]; /* last: the places without a member are not cleared */
} aq_batch;

/* The ticket's batch while it is its thread's, else NULL. */
aq_batch *aq_batch_of(const struct aq_ticket *ticket);

/* Whether the submission needs a new batch and none has events of its context. Then: a batch that has none any more, with the
 * events to be ended that it had (NULL: all are in use); and, with new events or NULL, it is one of the context's. */
bool aq_batch_is_lacking(const aq_submission *submission, const aq_core_context *context);
bool aq_batch_any_is_left(void);
aq_batch *aq_batch_take_blank(aq_events *had);
void aq_batch_equip(aq_batch *batch, aq_core_context *context, const aq_events *events);

/* The submission joins its thread's batch on the stream if it can, else a new one; NULL when there is none to be had. */
aq_batch *aq_batch_join(struct aq_lane *lane, const aq_submission *submission, aq_core_context *context, uint64_t now);

/* Whether it came under a lease, at whose end nothing of it should be left. */
static inline bool aq_batch_is_counted(const aq_batch *batch) { return batch->most_launches < AQ_ANY_LAUNCHES; }

/* Whether work can join this batch. */
bool aq_batch_can_join(const aq_batch *batch, const aq_core_context *context, const void *what);

/* The ticket's batch is nobody's from now on: nothing joins it. */
void aq_batch_leave(struct aq_ticket *ticket);

/* Tells an arbiter what there is to do on a card. `enters`: something is about to join a batch. */
void aq_batch_publish(int card, bool enters);

/* The end of work that should have been over is said to be now: so an arbiter knows it from that of a process that is
 * stopped, which no longer says anything. */
void aq_batch_publish_overdue(uint64_t now);

/* Its end event was recorded, when all that is before it had been submitted by an instant. */
void aq_batch_is_recorded(aq_batch *batch, uint64_t submitted_ns);

/* Its thread's call is over. */
void aq_batch_call_ends(aq_batch *batch);

/* Whether there is work behind its latest end event, which was reached at `to`, that is not over yet: its thread has gone on
 * submitting since this was last asked, and will record a later one; or it has fallen silent, and what it submitted
 * until then takes as long as is expected of it. */
bool aq_batch_goes_on(aq_batch *batch, uint64_t to, uint64_t now);

/* What a ticket for this batch may be good for, as far as work in flight goes: nanoseconds, and launches. */
int64_t aq_batch_room(const aq_batch *batch);
uint32_t aq_batch_room_for_launches(const aq_batch *batch);

/* The instant from which the oldest work of a stream takes much longer than was expected. */
uint64_t aq_batch_late_ns(const aq_queue *queue);

/* Whether a batch, when it was looked at last, had begun. What has not, though nothing of its stream is before it, waits for something
 * else than the card. */
void aq_batch_look(aq_batch *batch, bool begun, uint64_t now);

/* A ticket is out, or taken back with so much of it left. */
void aq_batch_reserve(aq_batch *batch, struct aq_ticket *ticket, int64_t worth, uint32_t launches);
void aq_batch_unreserve(aq_batch *batch, int64_t left);

/* Work that came by a ticket: of whose cost something will be learnt once it has an end event; and that it is there. */
void aq_batch_add_members(aq_batch *batch, const void *what, uint64_t cost, uint32_t count);
void aq_batch_add_unmeasured(aq_batch *batch, uint64_t ns);

/* Batches on this stream are nobody's from now on: none is joined, and the owner records nothing more. */
void aq_batch_disown(CUstream stream);

/* All tickets are taken back; their batches stay open. */
void aq_batch_recall(void);

/* The batch ran in [from, to): teaches the costs, charges it, frees it. */
void aq_batch_finish(aq_batch *batch, uint64_t from, uint64_t to);

/* Nobody will know when the batch ran: it is charged this much. */
void aq_batch_give_up(aq_batch *batch, uint64_t busy);

/* Forgets a context that is gone, with its batches and events; or everything (after fork). Neither touches the driver. */
void aq_batch_forget(aq_core_context *context);
void aq_batch_reset(void);

#endif
