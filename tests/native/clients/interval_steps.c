/* Adds random intervals and says what was missing of each: interval_steps SEED STEPS LENGTH. A line is "FROM TO MISSING COUNT". There
 * are LENGTH instants in all, and the last step adds them all.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "intervals.h"

static aq_intervals known;

static uint64_t missing(uint64_t from, uint64_t to) {
  uint64_t sum = aq_intervals_take(&known, from, to);
  aq_interval gap = {.to = from};
  while (aq_intervals_gap(&known, gap.to, to, &gap)) sum += gap.to - gap.from;
  return sum;
}

static void step(uint64_t from, uint64_t to) {
  printf("%" PRIu64 " %" PRIu64 " %" PRIu64, from, to, missing(from, to));
  aq_intervals_add(&known, (aq_interval){.from = from, .to = to}, 0);
  printf(" %u\n", known.count);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  srand((unsigned)atoi(argv[1]));
  uint64_t length = (uint64_t)atoi(argv[3]);
  for (int i = atoi(argv[2]); i; i--) {
    uint64_t from = (uint64_t)rand() % length, to = from + 1 + (uint64_t)rand() % 3;
    step(from, to < length ? to : length);
  }
  step(0, length);
  return 0;
}
