/* Few at a time: what runs without a pause is one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "spans.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

bool aq_spans_gap(const aq_spans *spans, uint64_t from, uint64_t to, aq_span *gap) {
  uint32_t i = 0;
  for (; i < spans->count && spans->spans[i].from <= from; i++) from = later(from, spans->spans[i].to);
  *gap = (aq_span){.from = from, .to = i < spans->count ? sooner(to, spans->spans[i].from) : to};
  return gap->from < gap->to;
}

static uint64_t free_in(const aq_span *span, uint64_t from, uint64_t to) {
  from = later(from, span->from), to = sooner(to, span->to);
  if (!span->free || from >= to) return 0;
  return (uint64_t)((double)span->free * (double)(to - from) / (double)(span->to - span->from));
}

uint64_t aq_spans_take(aq_spans *spans, uint64_t from, uint64_t to) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < spans->count; i++) {
    uint64_t part = free_in(&spans->spans[i], from, to);
    spans->spans[i].free -= part;
    sum += part;
  }
  return sum;
}

/* Takes `count` of them out, from the one at `at` on. */
static void take_out(aq_spans *spans, uint32_t at, uint32_t count) {
  spans->count -= count;
  memmove(&spans->spans[at], &spans->spans[at + count], (spans->count - at) * sizeof *spans->spans);
}

static void put_in(aq_spans *spans, uint32_t at, const aq_span *span) {
  memmove(&spans->spans[at + 1], &spans->spans[at], (spans->count - at) * sizeof *spans->spans);
  spans->spans[at] = *span;
  spans->count++;
}

static void forget(aq_spans *spans, uint64_t since) {
  uint32_t old = 0;
  while (old < spans->count && spans->spans[old].to <= since) old++;
  take_out(spans, 0, old);
}

static void join_nearest(aq_spans *spans) {
  uint32_t nearest = 0;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i + 1 < spans->count; i++) {
    uint64_t between = spans->spans[i + 1].from - spans->spans[i].to;
    if (between < least) least = between, nearest = i;
  }
  aq_span *one = &spans->spans[nearest], *other = one + 1;
  one->free += least + other->free;
  one->to = other->to;
  take_out(spans, nearest + 1, 1);
}

void aq_spans_add(aq_spans *spans, aq_span added, uint64_t since) {
  uint32_t at = 0, end;
  while (at < spans->count && spans->spans[at].to < added.from) at++;
  for (end = at; end < spans->count && spans->spans[end].from <= added.to; end++) {
    added.from = sooner(added.from, spans->spans[end].from);
    added.to = later(added.to, spans->spans[end].to);
    added.free += spans->spans[end].free;
  }
  take_out(spans, at, end - at);
  put_in(spans, at, &added);
  if (spans->count > AQ_SPANS) forget(spans, since);
  if (spans->count > AQ_SPANS) join_nearest(spans);
}
