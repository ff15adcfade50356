/* A small table by handle. It may forget: a forgotten cost is measured again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cost.h"

#include <stddef.h>

#define ENTRIES 2048
#define PROBES 4
#define WEIGHT 4    /* a new measurement counts one quarter, */
#define CAUTIOUS 16 /* or one part in so many, if it is shorter */

typedef struct {
  const void *what;
  uint64_t ns, soonest_ns, mean_ns;
  uint32_t measured; /* by itself: never, once, or more often */
} entry;

static entry table[ENTRIES];

static entry *bucket(const void *what) {
  uint64_t hash = (uint64_t)(uintptr_t)what * UINT64_C(0x9e3779b97f4a7c15);
  return &table[(hash >> 32) % (ENTRIES / PROBES) * PROBES];
}

static entry *find(const void *what) {
  entry *entries = bucket(what);
  for (int i = 0; i < PROBES; i++)
    if (entries[i].what == what) return &entries[i];
  return NULL;
}

uint64_t aq_cost(const void *what) {
  entry *known = find(what);
  return known ? known->ns : 0;
}

uint64_t aq_cost_soonest(const void *what) {
  entry *known = find(what);
  return known ? known->soonest_ns : 0;
}

uint64_t aq_cost_mean(const void *what) {
  entry *known = find(what);
  return known ? known->mean_ns : 0;
}

static uint64_t after(uint64_t known, uint64_t ns, bool cautious) {
  if (ns > known) return cautious ? ns : known + (ns - known) / WEIGHT;
  return known - (known - ns) / (cautious ? CAUTIOUS : WEIGHT);
}

static void add(entry *known, const void *what, uint64_t ns) {
  entry *entries = bucket(what);
  if (known) return;
  for (int i = PROBES - 1; i > 0; i--) entries[i] = entries[i - 1]; /* the oldest of the bucket is forgotten */
  entries[0] = (entry){.what = what, .ns = ns, .soonest_ns = ns};
}

/* The first measurement may have had the loading of code in it. */
static void learn_work(entry *known, uint64_t work) {
  bool is_first = known->measured == 0, is_second = known->measured == 1;
  known->mean_ns = is_first || (is_second && work < known->mean_ns) ? work : after(known->mean_ns, work, false);
  if (known->measured < 2) known->measured++;
}

void aq_cost_learn(const void *what, uint64_t ns, uint64_t work, bool alone, bool cautious) {
  if (!ns) ns = 1;
  if (!work) work = 1;
  add(find(what), what, ns);
  entry *known = find(what);
  if (!alone && known->measured) return;
  known->ns = after(known->ns, ns, cautious);
  known->soonest_ns = ns < known->soonest_ns ? ns : known->soonest_ns + (ns - known->soonest_ns) / CAUTIOUS;
  if (alone) learn_work(known, work);
}

void aq_cost_forget(const void *what) {
  entry *known = find(what);
  if (known) *known = (entry){.what = NULL};
}
