/* What a tenant says is believed as long as it can be true: time that runs backwards, or faster than time, is noise. Who says
 * it is held to its share by our own clock from then on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>

#define SPARE_NS UINT64_C(1000000000) /* several estimates that were too high */
#define RING_INTERVAL_NS UINT64_C(500000) /* the highest rate of rings that wake the arbiter, */
#define RING_BURST_NS (64 * RING_INTERVAL_NS) /* and so many more at once */
#define SPARE_MOST_NS UINT64_C(3600000000000) /* the longest kernel that is believed */

int aq_client_open(aq_client *client, const char *control, const char *usage, const aq_terms *terms, uint32_t count) {
  int error = aq_files_open(&client->files, control, usage);
  if (error) return error;
  for (; client->count < count; client->count++) {
    int place = aq_files_card(&client->files, terms[client->count].card);
    if (place < 0) {
      aq_files_close(&client->files);
      return ENODEV;
    }
    client->places[client->count] = (uint32_t)place;
  }
  return 0;
}

aq_trust aq_client_trust(const aq_client *client) {
  return client->damage ? AQ_BLIND : client->doubted ? AQ_DOUBTED : AQ_TRUSTED;
}

/* ---- what it says ---- */

static bool is_possible(aq_client *client, uint32_t entity, uint64_t used, uint64_t passed) {
  uint64_t spare = client->spare_ns[entity] + passed + passed / 4;
  bool possible = used <= spare;
  spare -= possible ? used : 0;
  client->spare_ns[entity] = spare < SPARE_MOST_NS ? spare : SPARE_MOST_NS;
  return possible;
}

/* Enters in the reports what was used since the last; a clock that ran backwards has wrapped. */
static const char *judge(aq_client *client, aq_words *words, uint64_t now) {
  const char *damage = NULL;
  for (uint32_t i = 0; i < client->count; i++) {
    uint64_t busy = words->busy_ns[client->places[i]], used = busy - client->busy_ns[i];
    if (!is_possible(client, i, used, now - client->read_ns)) damage = "it says to have had more of a card's time than passed";
    words->cards[client->places[i]].used_ns = used;
    client->busy_ns[i] = busy;
  }
  client->read_ns = now;
  return damage;
}

static bool has_rung(aq_client *client, const aq_words *words) {
  bool rung = false;
  for (uint32_t i = 0; i < client->count; i++) {
    if (client->bells[i] != words->bells[client->places[i]]) rung = true;
    client->bells[i] = words->bells[client->places[i]];
  }
  return rung;
}

static void count_ring(aq_client *client, uint64_t now) {
  uint64_t least = now + RING_INTERVAL_NS, most = least + RING_BURST_NS, next = client->rings_until_ns + RING_INTERVAL_NS;
  client->rings_until_ns = next < least ? least : next > most ? most : next;
}

static const char *read_work(aq_client *client, const aq_scheduler *sched, bool all, uint64_t now, aq_words *words) {
  if (aq_scheduler_suspect(sched, client->tenant)) aq_files_bury(&client->files);
  const char *damage = aq_files_read_work(&client->files, all, now, words);
  return damage ? damage : judge(client, words, now);
}

void aq_client_read(aq_client *client, aq_scheduler *sched, aq_depth depth, bool woken, uint64_t now) {
  aq_words words;
  const char *damage = aq_files_read(&client->files, &words);
  bool rung = has_rung(client, &words);
  if (rung || woken) count_ring(client, now);
  if (depth == AQ_BELLS_ONLY && !rung && !damage) return;
  if (!damage) damage = read_work(client, sched, rung || depth == AQ_ALL_SLOTS, now, &words);
  if (damage && !client->damage) client->damage = damage;
  aq_scheduler_trust(client->tenant, client->first, client->count, aq_client_trust(client));
  if (rung) aq_scheduler_rang(client->tenant);
  for (uint32_t i = 0; i < client->count; i++) aq_scheduler_report(sched, client->tenant, client->first + i, &words.cards[client->places[i]], now);
}

uint64_t aq_client_await(aq_client *client, const aq_scheduler *sched, aq_waiting *waiting, uint64_t now) {
  bool awaited = !client->damage && !aq_scheduler_expects(sched, client->tenant);
  client->rate_limited = awaited && client->rings_until_ns > now + RING_BURST_NS;
  client->awaited = awaited && !client->rate_limited ? client->count : 0;
  for (uint32_t i = 0; i < client->awaited; i++)
    aq_waiting_add(waiting, aq_files_bell(&client->files, client->places[i]), client->bells[i]);
  return client->rate_limited ? client->rings_until_ns - RING_BURST_NS : UINT64_MAX;
}

/* ---- what it is told ---- */

/* From here on it is believed, if it can be. */
void aq_client_forgive(aq_client *client, uint64_t now) {
  aq_words words, works = {0};
  aq_files_read_work(&client->files, true, now, &works); /* first: what ends in between has been said below */
  client->damage = aq_files_read(&client->files, &words);
  client->read_ns = now;
  for (uint32_t i = 0; i < client->count; i++) {
    bool at_work = works.cards[client->places[i]].in_flight; /* with what may have begun long ago, and is said when it ends */
    client->busy_ns[i] = words.busy_ns[client->places[i]];
    client->spare_ns[i] = at_work ? SPARE_MOST_NS : SPARE_NS;
  }
}

void aq_client_move(aq_client *client, aq_tenant *tenant, uint32_t first) {
  client->tenant = tenant;
  client->first = first;
  for (uint32_t i = 0; i < client->count; i++) {
    client->told[i] = aq_scheduler_lease(tenant, first + i);
    aq_files_set_gate(&client->files, client->places[i], &client->told[i]);
  }
}

void aq_client_entity(aq_client *client, aq_tenant *tenant, uint64_t now) {
  aq_client_forgive(client, now);
  for (uint32_t i = 0; i < client->count; i++) {
    const aq_control_card *card = &client->files.control->cards[client->places[i]];
    client->base[i] = (aq_account){.guaranteed_ns = card->guaranteed_ns, .used_ns = card->used_ns, .lent_ns = card->lent_ns};
  }
  aq_client_move(client, tenant, 0);
  aq_files_beat(&client->files, now);
}

void aq_client_interrupt(aq_client *client) {
  for (uint32_t i = 0; i < client->count; i++) client->told[i].open = true;
}

bool aq_client_tell(aq_client *client) {
  bool closed = false;
  for (uint32_t i = 0; i < client->count; i++) {
    aq_lease lease = aq_scheduler_lease(client->tenant, client->first + i), told = client->told[i];
    client->told[i] = lease;
    if (lease.serial != told.serial && (lease.open || told.open)) aq_files_set_gate(&client->files, client->places[i], &lease);
    else if (lease.end_ns != told.end_ns) aq_files_extend(&client->files, client->places[i], &lease);
    if (told.open && lease.serial != told.serial && !lease.open) closed = true;
  }
  return closed;
}

void aq_client_tell_accounts(aq_client *client) {
  for (uint32_t i = 0; i < client->count; i++) {
    aq_account account = aq_scheduler_account(client->tenant, client->first + i);
    account.guaranteed_ns += client->base[i].guaranteed_ns;
    account.used_ns += client->base[i].used_ns;
    account.lent_ns += client->base[i].lent_ns;
    aq_files_tell(&client->files, client->places[i], &account);
  }
}
