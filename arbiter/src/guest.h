/* A tenant at its arbiter: what its files say goes to the law, what the law says goes to its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_GUEST_H
#define AQ_GUEST_H

#include "arbiter.h"
#include "files.h"
#include "waiting.h"

struct aq_guest {
  aq_files files;
  aq_tenant *tenant;
  uint32_t count;
  uint32_t places[AQ_MAX_CARDS]; /* of its seats in the page */
  aq_lease told[AQ_MAX_CARDS];
  aq_account base[AQ_MAX_CARDS]; /* what the page had when it entered */
  uint32_t bells[AQ_MAX_CARDS];
  uint32_t awaited; /* of them, in the wait that is on */
  bool unheard;     /* it rings too often to be woken by: it is looked at, but not at once */
  uint64_t rung_ns; /* its rings so far would have come until then, had they come at the rate that it may keep up */
  uint64_t busy_ns[AQ_MAX_CARDS];  /* as last read, */
  uint64_t spare_ns[AQ_MAX_CARDS]; /* and how much more there may be */
  uint64_t read_ns;
  bool doubted;
  const char *damage;
  aq_guest *next;
};

/* 0, or an errno value. */
int aq_guest_open(aq_guest *guest, const char *control, const char *usage, const aq_terms *terms, uint32_t count);

/* It has entered as `tenant`: its gates are closed. */
void aq_guest_seat(aq_guest *guest, aq_tenant *tenant, uint64_t now);

/* What was wrong with what it says is forgotten. */
void aq_guest_forgive(aq_guest *guest, uint64_t now);

/* How much there is to read. */
typedef enum {
  AQ_BELLS_ONLY, /* all, if one was rung */
  AQ_KNOWN_SLOTS,
  AQ_ALL_SLOTS,
} aq_depth;

/* Reads what it says and reports it. Returns whether it has rung since it was last read. */
bool aq_guest_read(aq_guest *guest, aq_law *law, aq_depth depth, uint64_t now);

/* It has woken the arbiter, who was waiting for its bells. */
void aq_guest_count_wake(aq_guest *guest, uint64_t now);

/* Its gates count as open: the next words close them, under other numbers. */
void aq_guest_interrupt(aq_guest *guest);

/* Opens and closes its gates as its leases stand. Returns whether one was closed: then it is to be read once more. */
bool aq_guest_tell(aq_guest *guest);

void aq_guest_tell_accounts(aq_guest *guest);

/* Has its bells waited for, unless it is looked at in time anyhow. Those of one that rings too often are not; returns when it is
 * to be looked at, UINT64_MAX for others. */
uint64_t aq_guest_await(aq_guest *guest, const aq_law *law, aq_waiting *waiting, uint64_t now);
aq_trust aq_guest_trust(const aq_guest *guest);

#endif
