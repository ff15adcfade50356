/* Opens and ends batches of one process on one card at the instants that it is told, on the interceptor's own accounts:
 *   batch_steps PAGE SHARE     a usage page, and hundredths of a percent
 * A line is "open NUMBER STREAM AT", "more NUMBER COUNT AT" (by a ticket, and an event), "end NUMBER FROM TO AT" or "look AT", in nanoseconds. To each it says what was charged so far by all who have the
 * page, the instant until which the clock is paid, for how long work of another stream would find the card busy, and
 * how many batches were opened as samples. Each work is expected to take a microsecond.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "batch_stubs.h"

#define MOST 100000

static aq_core_context context = {.handle = (CUcontext)1};
static aq_batch *batches_of[MOST];
static unsigned samples;

void aq_core_contexts_forget(void) {}

aq_core_context *aq_core_contexts(size_t *count) {
  *count = 1;
  return &context;
}

static CUevent any_event(void) { return (CUevent)1; }

static void submit_more(aq_batch *batch, uint32_t count) {
  aq_batch_add_members(batch, &control, cost_ns, count);
  aq_batch_is_recorded(batch, now_ns);
}

static void obey(const char *line) {
  unsigned number;
  uint64_t stream, count, from, to;
  if (sscanf(line, "open %u %" SCNu64 " %" SCNu64, &number, &stream, &now_ns) == 3) samples += (batches_of[number] = submit(&context, stream, any_event))->sample;
  else if (sscanf(line, "end %u %" SCNu64 " %" SCNu64 " %" SCNu64, &number, &from, &to, &now_ns) == 4)
    aq_batch_finish(batches_of[number], from, to);
  else if (sscanf(line, "more %u %" SCNu64 " %" SCNu64, &number, &count, &now_ns) == 3) submit_more(batches_of[number], (uint32_t)count);
  else if (sscanf(line, "look %" SCNu64, &now_ns) == 1) aq_charge_hear_others();
  else exit(3);
}

int main(int argc, char **argv) {
  char line[128];
  int page = argc == 3 ? open(argv[1], O_RDWR) : -1;
  void *mapped = mmap(NULL, sizeof(aq_usage_page), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  if (mapped == MAP_FAILED) return 2;
  aq_slice.usage = mapped;
  aq_slice.control = &control;
  share = (uint32_t)atoi(argv[2]);
  cost_ns = 1000;
  while (fgets(line, sizeof line, stdin)) {
    obey(line);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", aq_slice.usage->cards[0].busy_ns, aq_clock_open_at(&aq_slice.usage->cards[0]),
           aq_flight_ahead(&aq_flights[0], NULL), samples);
    fflush(stdout);
  }
  return 0;
}
