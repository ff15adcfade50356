/* Times as disjoint intervals, in the order of time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SPANS_H
#define AQ_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#define AQ_SPANS 32

typedef struct {
  uint64_t from, to; /* nanoseconds of the host's clock; `to` is the first instant behind it */
} aq_span;

typedef struct {
  aq_span spans[AQ_SPANS];
  uint32_t count;
} aq_spans;

/* The first part of [from, to) that is in none of them. False: there is none. */
bool aq_spans_gap(const aq_spans *spans, uint64_t from, uint64_t to, aq_span *gap);

/* Adds one. Where they become too many, what ended `since` then or before is forgotten; if that does not do, the two with the
 * least between them become one. */
void aq_spans_add(aq_spans *spans, aq_span added, uint64_t since);

#endif
