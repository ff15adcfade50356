/* Measures what is free: which kinds of pods find room on a card, and what of a node is of use to whom.
 *
 * The loops over kinds of pods take four at a time, as vectors that every compiler for every processor has at its disposal:
 * sums are the same on all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <math.h>
#include <string.h>

enum { LANES = 4 };

typedef float aq_floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t aq_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* All ones where a bit is set, by the bits of a block. */
static const aq_ints MASKS[1 << LANES] = {
    {0, 0, 0, 0},    {-1, 0, 0, 0},  {0, -1, 0, 0},   {-1, -1, 0, 0},   /* 0 to 3 */
    {0, 0, -1, 0},   {-1, 0, -1, 0}, {0, -1, -1, 0},  {-1, -1, -1, 0},  /* 4 to 7 */
    {0, 0, 0, -1},   {-1, 0, 0, -1}, {0, -1, 0, -1},  {-1, -1, 0, -1},  /* 8 to 11 */
    {0, 0, -1, -1},  {-1, 0, -1, -1}, {0, -1, -1, -1}, {-1, -1, -1, -1}, /* 12 to 15 */
};

/* ---- vectors ---- */

static inline aq_floats floats_at(const float *from) {
  aq_floats found;
  memcpy(&found, from, sizeof found);
  return found;
}

static inline aq_ints ints_at(const int32_t *from) {
  aq_ints found;
  memcpy(&found, from, sizeof found);
  return found;
}

static inline aq_floats all(float one) { return (aq_floats){one, one, one, one}; }

static inline aq_floats where(aq_ints mask, aq_floats here) { return (aq_floats)(mask & (aq_ints)here); }

static inline aq_floats lesser(aq_floats one, aq_floats other) {
  aq_ints less = one < other;
  return (aq_floats)((less & (aq_ints)one) | (~less & (aq_ints)other));
}

static inline float sum(aq_floats parts) { return parts[0] + parts[1] + parts[2] + parts[3]; }

/* ---- cards ---- */

static inline int64_t positive(int64_t amount) { return amount > 0 ? amount : 0; }

/* The last edge that is not above an amount; the first never is. */
static inline int64_t last_below(const int64_t *edges, int64_t count, int64_t amount) {
  const int64_t *from = edges;
  while (count > 1) {
    int64_t half = count / 2;
    from += from[half] <= amount ? half : 0;
    count -= half;
  }
  return from - edges;
}

static int32_t code_of(const aq_workload *workload, int64_t kind, int64_t left, int64_t time) {
  int64_t start = workload->starts[kind];
  int64_t memory = start + last_below(workload->edges + start, workload->starts[kind + 1] - start, left);
  return (int32_t)(memory * workload->times + last_below(workload->time_edges, workload->times, time) + 1);
}

static aq_sight sight_of(const aq_workload *workload, const aq_card *card, int64_t left, int64_t time) {
  double memory = (double)left / (double)(card->usable > 1 ? card->usable : 1), value = memory, rest = memory;
  if (workload->memory_weight < 1) {
    double part = (double)time / (double)(card->usable_cores > 1 ? card->usable_cores : 1);
    value = workload->memory_weight * memory + (1 - workload->memory_weight) * part;
    rest = part < rest ? part : rest;
  }
  long step = lrint(rest * (double)workload->steps);
  step = step < workload->steps ? step : (long)workload->steps;
  return (aq_sight){
      .value = (float)value,
      .worth = workload->worths[card->kind * (workload->steps + 1) + step],
      .code = code_of(workload, card->kind, left, time),
  };
}

aq_sight aq_workload_sight(const aq_workload *workload, const aq_card *card, int64_t slots_each) {
  if (!card->sound || card->holders || card->slots >= slots_each) return (aq_sight){.code = 0};
  int64_t promised = card->usable + card->extra - card->used, guaranteed = card->usable - (card->used - card->burst);
  int64_t left = promised < guaranteed ? promised : guaranteed;
  return sight_of(workload, card, positive(left), positive(card->usable_cores - card->cores));
}

float aq_workload_lost(const aq_workload *workload, const aq_sight *sight) {
  return sight->value * workload->useless[sight->code] + (float)workload->fill * (sight->value - sight->worth);
}

/* ---- nodes ---- */

/* Lists a card, unless nobody has room on it. */
static int64_t open_card(const aq_workload *workload, const aq_table *table, int64_t count, const aq_sight *sight) {
  if (workload->useless[sight->code] >= 1) return count;
  table->open[count] = (aq_open){.rooms = workload->rooms + sight->code * workload->blocks, .value = sight->value};
  return count + 1;
}

/* How many of the listed cards have room for each kind of a block, and what is free on those. */
static inline aq_ints count_rooms(const aq_open *open, int64_t count, int64_t block, aq_floats *useful) {
  aq_ints found = {0};
  for (int64_t n = 0; n < count; n++) {
    aq_ints has = MASKS[open[n].rooms[block]];
    found -= has;
    *useful += where(has, all(open[n].value));
  }
  return found;
}

/* CPU and memory of a node as floats. */
typedef struct {
  aq_floats cpu, mib;
} aq_host;

static aq_host host_of(int64_t cpu, int64_t mib) {
  return (aq_host){all((float)positive(cpu)), all((float)positive(mib))};
}

/* Where the cards suffice, and CPU and memory for one. */
static inline aq_ints runs(const aq_workload *workload, int64_t pod, aq_ints count, aq_host left) {
  aq_ints by_cpu = left.cpu >= floats_at(workload->cpu + pod), by_mib = left.mib >= floats_at(workload->mib + pod);
  return (count >= ints_at(workload->cards + pod)) & by_cpu & by_mib;
}

/* What no pod has, by kind of pod and its weight. */
static float lost_to_kinds(const aq_workload *workload, const aq_open *open, int64_t count, const uint8_t *possible, int64_t kind,
                           aq_host left, float free) {
  const float *per_cpu = workload->per_cpu + kind * workload->blocks * LANES, *per_mib = workload->per_mib + kind * workload->blocks * LANES;
  aq_floats total = {0}, everything = all(free), ahead = all((float)workload->ahead);
  for (int64_t block = 0, pod = 0; block < workload->blocks; block++, pod += LANES) {
    aq_floats useful = {0};
    aq_ints found = count_rooms(open, count, block, &useful);
    aq_floats limit = lesser(left.cpu * floats_at(per_cpu + pod), left.mib * floats_at(per_mib + pod));
    aq_floats reach = useful + ahead * (lesser(useful, limit) - useful);
    aq_floats lost = everything - where(runs(workload, pod, found, left), reach);
    total += where(MASKS[possible[block]], lost) * floats_at(workload->weights + pod);
  }
  return sum(total);
}

/* How many cards' worth of slices CPU and memory suffice for, on average. */
static float flow_of(const aq_workload *workload, int64_t kind, int64_t cpu, int64_t mib) {
  double by_cpu = (double)cpu / workload->cpu_each[kind], by_mib = (double)mib / workload->mib_each[kind];
  double cards = by_cpu < by_mib ? by_cpu : by_mib;
  return cards > 0 ? (float)cards : 0;
}

aq_measure aq_workload_measure(const aq_workload *workload, const aq_table *table, const uint8_t *possible, int64_t cpu, int64_t mib) {
  int64_t count = 0, kind = table->cards[0].kind;
  float free = 0, worth = 0;
  for (int64_t n = 0; n < table->columns; n++) {
    const aq_sight *sight = &table->cards[n].sight;
    count = open_card(workload, table, count, sight);
    free += sight->value;
    worth += sight->worth;
  }
  float lost = lost_to_kinds(workload, table->open, count, possible, kind, host_of(cpu, mib), free);
  lost += (float)workload->fill * (free - worth);
  if (workload->flow > 0) {
    float beyond = free - flow_of(workload, kind, cpu, mib);
    lost += beyond > 0 ? (float)workload->flow * beyond : 0;
  }
  return (aq_measure){.fragment = lost, .free = free};
}

void aq_workload_possible(const aq_workload *workload, const aq_table *table, int64_t cpu, int64_t mib, uint8_t *possible) {
  int64_t count = 0;
  for (int64_t n = 0; n < table->columns; n++) {
    const aq_card *card = &table->cards[n];
    if (!card->exists) continue;
    aq_sight empty = sight_of(workload, card, positive(card->usable), positive(card->usable_cores));
    count = open_card(workload, table, count, &empty);
  }
  for (int64_t block = 0; block < workload->blocks; block++) {
    aq_floats useful = {0};
    aq_ints can = runs(workload, block * LANES, count_rooms(table->open, count, block, &useful), host_of(cpu, mib));
    possible[block] = 0;
    for (int lane = 0; lane < LANES; lane++) possible[block] |= (uint8_t)((can[lane] & 1) << lane);
  }
}
