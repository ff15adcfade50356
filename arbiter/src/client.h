/* A tenant at its arbiter: what its files say goes to the scheduler, what the scheduler says goes to its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CLIENT_H
#define AQ_CLIENT_H

#include "arbiter.h"
#include "files.h"
#include "waiting.h"

struct aq_client {
  aq_files files;
  uint32_t group;    /* clients of one group are one tenant to the scheduler, as far as their cards differ; 0: none */
  aq_tenant *tenant;
  uint32_t first;    /* of its entities there, */
  uint32_t count;
  uint32_t places[AQ_MAX_CARDS]; /* and of each in the page */
  aq_lease told[AQ_MAX_CARDS];
  aq_account base[AQ_MAX_CARDS]; /* what the page had when it entered */
  uint32_t bells[AQ_MAX_CARDS];
  uint32_t awaited; /* of them, in the wait that is on */
  bool rate_limited;      /* its bells wake nobody in the wait that is on: they are looked at when the next ring may come */
  uint64_t rings_until_ns; /* its rings so far would have come until then, had they come at the highest rate allowed */
  uint64_t busy_ns[AQ_MAX_CARDS];  /* as last read, */
  uint64_t spare_ns[AQ_MAX_CARDS]; /* and how much more there may be */
  uint64_t read_ns;
  bool doubted;
  const char *damage;
  aq_client *next;
};

/* 0, or an errno value. */
int aq_client_open(aq_client *client, const char *control, const char *usage, const aq_terms *terms, uint32_t count);

/* It has entered as `tenant`: its gates are closed. */
void aq_client_entity(aq_client *client, aq_tenant *tenant, uint64_t now);

/* Its entities have moved to a tenant, where they begin with this one. */
void aq_client_move(aq_client *client, aq_tenant *tenant, uint32_t first);

/* What was wrong with what it says is forgotten. */
void aq_client_forgive(aq_client *client, uint64_t now);

/* How much there is to read. */
typedef enum {
  AQ_BELLS_ONLY, /* all, if one was rung */
  AQ_KNOWN_SLOTS,
  AQ_ALL_SLOTS,
} aq_depth;

/* Reads what it says and reports it. `woken`: it has woken the arbiter, with a ring or without. */
void aq_client_read(aq_client *client, aq_scheduler *sched, aq_depth depth, bool woken, uint64_t now);

/* Its gates count as open: the next words close them, under other numbers. */
void aq_client_interrupt(aq_client *client);

/* Opens and closes its gates as its leases stand. Returns whether one was closed: then it is to be read once more. */
bool aq_client_tell(aq_client *client);

void aq_client_tell_accounts(aq_client *client);

/* Has its bells waited for, unless it is looked at in time anyhow or is rate limited. Returns when its next ring may come, where
 * it is, else UINT64_MAX. */
uint64_t aq_client_await(aq_client *client, const aq_scheduler *sched, aq_waiting *waiting, uint64_t now);
aq_trust aq_client_trust(const aq_client *client);

#endif
