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

void aq_cost_learn(const void *what, uint64_t ns, uint64_t work, bool cautious) {
  if (!ns) ns = 1;
  if (!work) work = 1;
  entry *known = find(what);
  if (known) {
    known->ns = after(known->ns, ns, cautious);
    known->mean_ns = after(known->mean_ns, work, false);
    known->soonest_ns = ns < known->soonest_ns ? ns : known->soonest_ns + (ns - known->soonest_ns) / CAUTIOUS;
    return;
  }
  entry *entries = bucket(what);
  for (int i = PROBES - 1; i > 0; i--) entries[i] = entries[i - 1]; /* the oldest of the bucket is forgotten */
  entries[0] = (entry){what, ns, ns, work};
}

void aq_cost_forget(const void *what) {
  entry *known = find(what);
  if (known) *known = (entry){NULL, 0, 0, 0};
}
