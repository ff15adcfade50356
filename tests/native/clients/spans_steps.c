/* Adds random intervals and says what was missing of each: spans_steps SEED STEPS LENGTH. A line is "FROM TO MISSING COUNT". The
 * test compares it with a set of instants. There are LENGTH instants in all.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "spans.h"

static uint64_t missing(const aq_spans *spans, uint64_t from, uint64_t to) {
  uint64_t sum = 0;
  aq_span gap = {.to = from};
  while (aq_spans_gap(spans, gap.to, to, &gap)) sum += gap.to - gap.from;
  return sum;
}

int main(int argc, char **argv) {
  static aq_spans spans;
  if (argc != 4) return 2;
  srand((unsigned)atoi(argv[1]));
  uint64_t length = (uint64_t)atoi(argv[3]);
  for (int i = atoi(argv[2]); i; i--) {
    uint64_t from = (uint64_t)rand() % length, to = from + 1 + (uint64_t)rand() % 3;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64, from, to, missing(&spans, from, to));
    aq_spans_add(&spans, (aq_span){from, to}, 0);
    printf(" %u\n", spans.count);
  }
  return 0;
}
