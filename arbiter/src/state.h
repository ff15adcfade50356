/* What the scheduler remembers of cards and tenants. An entity is a tenant's place at a card.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_STATE_H
#define AQ_STATE_H

#include "aliquot_pages.h"
#include "scheduler.h"

#define AQ_MS UINT64_C(1000000)

typedef struct aq_card {
  char uuid[AQ_UUID_SIZE];
  uint64_t quantum_ns; /* 0: as usual */
  uint32_t entities;
  /* As of this step. */
  uint32_t holders; /* tenants that have it leased, or have not drained */
  uint32_t runners; /* of these, and of the exempt, with work in flight */
  uint32_t strays;  /* that run on it without a lease, work that nothing can stop */
  bool reserved;    /* for a tenant that waits for another of its cards */
  uint32_t claims;  /* tenants that wait for it by right */
  bool owned;       /* leased by right */
  bool contended;   /* more than one tenant has had work lately */
  uint32_t highest; /* priority of a tenant with an entity */
  uint32_t exempts; /* entities that are let in without a lease */
  double overlap_ns; /* more than the time that passed is said to have been used, and not shared out yet; negative: some is still to be said */
  struct aq_card *next;
} aq_card;

typedef struct {
  aq_card *card;
  double share; /* of 1 */
  double most;
  uint32_t priority;
  aq_trust trust;
  aq_report said;
  bool let_in;        /* without a lease */
  bool seen;          /* reported since the gate was closed */
  bool absent;        /* nothing of what it says to have in flight is on the card, as the driver sees it */
  uint32_t serial;    /* of its gate alone */
  uint64_t active_ns; /* when it last had work in flight, or used time */
  uint64_t wanted_ns; /* when it last had anything to do; 0: never */
  uint64_t waits_ns;  /* since when it waits, or waited last */
  uint64_t paid_ns;   /* what ran before this instant is charged */
  uint64_t flies_ns;  /* since when it has work in flight, or had last */
  double told_ns;     /* said to have been used lately, */
  double turns_ns;    /* and had, if contexts with work in flight took turns */
  double discount_ns; /* of what it will say to have used: what others had of the same time */
  double due_ns;      /* share * time - time used: before 0 the tenant has no claim */
  double room_ns;     /* most * time - time used */
  double contested_ns; /* held by right while another with a right to it waited, and not charged yet */
  double fined_ns;     /* charged without having been used */
  double overrun_ns;  /* of its report to come, as a stray: what it had of that is charged already */
  double guaranteed_ns, used_ns, lent_ns, held_ns;
} aq_entity;

typedef enum { AQ_SHUT, AQ_LEASED, AQ_DRAINING } aq_state;

/* What a tenant may claim, the better the greater. */
typedef enum { AQ_NOTHING, AQ_LENT, AQ_OWN } aq_claim;

typedef struct {
  aq_claim claim;
  uint32_t priority;
  double merit;
} aq_order;

struct aq_tenant {
  aq_entity entities[AQ_MAX_CARDS];
  uint32_t count;
  uint32_t priority; /* the highest of its entities */
  aq_trust trust;    /* the least of its entities */
  aq_state state;
  aq_claim kind;       /* of the lease it has, or had last */
  bool started;        /* since it got the lease */
  bool gave_up;        /* its last lease, because it had nothing to do */
  bool stray;          /* runs on without a lease, since it last had nothing in flight */
  bool wishes_exempt;  /* to be without leases */
  bool exempt;         /* is without */
  uint32_t open;       /* entities whose gate the lease opens, a bit each */
  uint32_t leaving;    /* entities whose gate was closed since, and which may have work in flight */
  bool apart;          /* its cards are leased one by one, */
  uint64_t apart_since_ns;
  uint64_t together_until_ns; /* and not before this instant */
  uint32_t joins;      /* how often in a row that soon turned out to be wrong */
  uint32_t partners;   /* entities whose gate is open for one piece of work, after the lease */
  uint64_t partners_ns; /* since when */
  uint32_t serial;
  uint32_t no_shows;   /* leases in a row that it did not begin to use */
  uint64_t shunned_until_ns;
  uint64_t since_ns;   /* of the state */
  uint64_t lease_end_ns, window_ns;
  bool unhurried;      /* nobody waits for the lease to end, and it may be had again */
  double lent_turn_ns; /* lent time by share; the least is next */
  /* As of this step. */
  uint32_t members; /* entities that are leased together, a bit each */
  bool wants;
  bool considered; /* for a lease */
  aq_order rank;
  struct aq_tenant *next;
};

struct aq_scheduler {
  aq_rules rules;
  uint64_t now_ns;
  uint64_t late_ns; /* how late threads are woken */
  aq_tenant *tenants;
  aq_card *cards;
};

#endif
