/* What cards and nodes are worth to typical pods.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_MEASURE_H
#define AQ_MEASURE_H

#include <stdbool.h>

#include "scoring.h"

/* Fragment of a node, and what is free on it. */
typedef struct {
  float fragment, free;
} aq_measure;

/* A card as it is, on a node that gives each so many slots. */
aq_sight aq_workload_sight(const aq_workload *workload, const aq_card *card, int64_t slots_each);

/* What is free on a card, times the weight of the pods that have no room there; and what stays unfilled. */
float aq_workload_lost(const aq_workload *workload, const aq_sight *sight);

/* The node whose cards are in the table's workspace, with so much of its CPU and memory left. */
aq_measure aq_workload_measure(const aq_workload *workload, const aq_table *table, const uint8_t *possible, int64_t cpu, int64_t mib);

/* Which kinds of pods the same node could run if it were empty; a bit each. */
void aq_workload_possible(const aq_workload *workload, const aq_table *table, int64_t cpu, int64_t mib, uint8_t *possible);

#endif
