/* What a tenant says is believed as long as it can be true: time that runs backwards, or faster than time, is noise. Who says
 * it is held to its share by our own clock from then on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <errno.h>

#define SPARE_NS UINT64_C(1000000000) /* several estimates that were too high */
#define RING_INTERVAL_NS UINT64_C(500000) /* the highest rate of rings that wake the arbiter, */
#define RING_BURST_NS (64 * RING_INTERVAL_NS) /* and so many more at once */
#define SPARE_MOST_NS UINT64_C(3600000000000) /* the longest kernel that is believed */

int aq_guest_open(aq_guest *guest, const char *control, const char *usage, const aq_terms *terms, uint32_t count) {
  int error = aq_files_open(&guest->files, control, usage);
  if (error) return error;
  for (; guest->count < count; guest->count++) {
    int place = aq_files_card(&guest->files, terms[guest->count].card);
    if (place < 0) {
      aq_files_close(&guest->files);
      return ENODEV;
    }
    guest->places[guest->count] = (uint32_t)place;
  }
  return 0;
}

aq_trust aq_guest_trust(const aq_guest *guest) {
  return guest->damage ? AQ_BLIND : guest->doubted ? AQ_DOUBTED : AQ_TRUSTED;
}

/* ---- what it says ---- */

static bool is_possible(aq_guest *guest, uint32_t seat, uint64_t used, uint64_t passed) {
  uint64_t spare = guest->spare_ns[seat] + passed + passed / 4;
  bool possible = used <= spare;
  spare -= possible ? used : 0;
  guest->spare_ns[seat] = spare < SPARE_MOST_NS ? spare : SPARE_MOST_NS;
  return possible;
}

/* Enters in the reports what was used since the last; a clock that ran backwards has wrapped. */
static const char *judge(aq_guest *guest, aq_words *words, uint64_t now) {
  const char *damage = NULL;
  for (uint32_t i = 0; i < guest->count; i++) {
    uint64_t busy = words->busy_ns[guest->places[i]], used = busy - guest->busy_ns[i];
    if (!is_possible(guest, i, used, now - guest->read_ns)) damage = "it says to have had more of a card's time than passed";
    words->cards[guest->places[i]].used_ns = used;
    guest->busy_ns[i] = busy;
  }
  guest->read_ns = now;
  return damage;
}

static bool has_rung(aq_guest *guest, const aq_words *words) {
  bool rung = false;
  for (uint32_t i = 0; i < guest->count; i++) {
    if (guest->bells[i] != words->bells[guest->places[i]]) rung = true;
    guest->bells[i] = words->bells[guest->places[i]];
  }
  return rung;
}

static void count_ring(aq_guest *guest, uint64_t now) {
  uint64_t least = now + RING_INTERVAL_NS, most = least + RING_BURST_NS, next = guest->rings_until_ns + RING_INTERVAL_NS;
  guest->rings_until_ns = next < least ? least : next > most ? most : next;
}

static const char *read_work(aq_guest *guest, const aq_law *law, bool all, uint64_t now, aq_words *words) {
  if (aq_law_suspect(law, guest->tenant)) aq_files_bury(&guest->files);
  const char *damage = aq_files_read_work(&guest->files, all, now, words);
  return damage ? damage : judge(guest, words, now);
}

void aq_guest_read(aq_guest *guest, aq_law *law, aq_depth depth, bool woken, uint64_t now) {
  aq_words words;
  const char *damage = aq_files_read(&guest->files, &words);
  bool rung = has_rung(guest, &words);
  if (rung || woken) count_ring(guest, now);
  if (depth == AQ_BELLS_ONLY && !rung && !damage) return;
  if (!damage) damage = read_work(guest, law, rung || depth == AQ_ALL_SLOTS, now, &words);
  if (damage && !guest->damage) guest->damage = damage;
  aq_law_trust(guest->tenant, guest->first, guest->count, aq_guest_trust(guest));
  if (rung) aq_law_rang(guest->tenant);
  for (uint32_t i = 0; i < guest->count; i++) aq_law_report(law, guest->tenant, guest->first + i, &words.cards[guest->places[i]], now);
}

uint64_t aq_guest_await(aq_guest *guest, const aq_law *law, aq_waiting *waiting, uint64_t now) {
  bool awaited = !guest->damage && !aq_law_expects(law, guest->tenant);
  guest->rate_limited = awaited && guest->rings_until_ns > now + RING_BURST_NS;
  guest->awaited = awaited && !guest->rate_limited ? guest->count : 0;
  for (uint32_t i = 0; i < guest->awaited; i++)
    aq_waiting_add(waiting, aq_files_bell(&guest->files, guest->places[i]), guest->bells[i]);
  return guest->rate_limited ? guest->rings_until_ns - RING_BURST_NS : UINT64_MAX;
}

/* ---- what it is told ---- */

/* From here on it is believed, if it can be. */
void aq_guest_forgive(aq_guest *guest, uint64_t now) {
  aq_words words, works = {0};
  aq_files_read_work(&guest->files, true, now, &works); /* first: what ends in between has been said below */
  guest->damage = aq_files_read(&guest->files, &words);
  guest->read_ns = now;
  for (uint32_t i = 0; i < guest->count; i++) {
    bool at_work = works.cards[guest->places[i]].in_flight; /* with what may have begun long ago, and is said when it ends */
    guest->busy_ns[i] = words.busy_ns[guest->places[i]];
    guest->spare_ns[i] = at_work ? SPARE_MOST_NS : SPARE_NS;
  }
}

void aq_guest_move(aq_guest *guest, aq_tenant *tenant, uint32_t first) {
  guest->tenant = tenant;
  guest->first = first;
  for (uint32_t i = 0; i < guest->count; i++) {
    guest->told[i] = aq_law_lease(tenant, first + i);
    aq_files_set_gate(&guest->files, guest->places[i], &guest->told[i]);
  }
}

void aq_guest_seat(aq_guest *guest, aq_tenant *tenant, uint64_t now) {
  aq_guest_forgive(guest, now);
  for (uint32_t i = 0; i < guest->count; i++) {
    const aq_control_card *card = &guest->files.control->cards[guest->places[i]];
    guest->base[i] = (aq_account){.guaranteed_ns = card->guaranteed_ns, .used_ns = card->used_ns, .lent_ns = card->lent_ns};
  }
  aq_guest_move(guest, tenant, 0);
  aq_files_beat(&guest->files, now);
}

void aq_guest_interrupt(aq_guest *guest) {
  for (uint32_t i = 0; i < guest->count; i++) guest->told[i].open = true;
}

bool aq_guest_tell(aq_guest *guest) {
  bool closed = false;
  for (uint32_t i = 0; i < guest->count; i++) {
    aq_lease lease = aq_law_lease(guest->tenant, guest->first + i), told = guest->told[i];
    guest->told[i] = lease;
    if (lease.serial != told.serial && (lease.open || told.open)) aq_files_set_gate(&guest->files, guest->places[i], &lease);
    else if (lease.end_ns != told.end_ns) aq_files_extend(&guest->files, guest->places[i], &lease);
    if (told.open && lease.serial != told.serial && !lease.open) closed = true;
  }
  return closed;
}

void aq_guest_tell_accounts(aq_guest *guest) {
  for (uint32_t i = 0; i < guest->count; i++) {
    aq_account account = aq_law_account(guest->tenant, guest->first + i);
    account.guaranteed_ns += guest->base[i].guaranteed_ns;
    account.used_ns += guest->base[i].used_ns;
    account.lent_ns += guest->base[i].lent_ns;
    aq_files_tell(&guest->files, guest->places[i], &account);
  }
}
