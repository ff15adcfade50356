/* Looks at batches of a process as its monitor does, on a driver of which nothing is there but the times of events: reference_steps.
 * Batches of 10 ms follow one another. Whenever a look renews the reference to which a context's events are placed, another batch is
 * seen to be over in that look as well. Prints what was charged, what ran, and by how much the clocks are apart then, in microseconds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "monitor.c" /* its looks are nobody else's */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "batch_stubs.h"

#define BOOT UINT64_C(1000000000000) /* of the host's clock, when the card's is at 0 */
#define SECONDS 10
#define LENGTH_MS 10.0
#define RENEWED_MS 4000.0

typedef struct {
  double at_ms;
} instant;

/* ---- what the monitor asks of others ---- */

int aq_tenant_decided, aq_cuda_loaded = 1;
aq_cuda_functions aq_cuda_table;

static double card_ms;
static aq_usage_page usage;

void aq_load_cuda(void) {}
void aq_lanes_forget(void) {}
int aq_quota_enter(void) { return -1; }
void aq_quota_exit(void) {}
void aq_robust_list_begin(void) {}
void aq_robust_list_mark(int slot) { (void)slot; }
void aq_tenant_note(const char *text) { (void)text; }
aq_mode aq_tenant_decide(void) { return AQ_GUARD; }

static CUresult query(CUevent event) {
  return ((instant *)event)->at_ms <= card_ms ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed_time(float *ms, CUevent from, CUevent to) {
  *ms = (float)(((instant *)to)->at_ms - ((instant *)from)->at_ms);
  return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context) { return (void)context, CUDA_SUCCESS; }

static CUevent new_event(void) { return calloc(1, sizeof(instant)); }

/* ---- the program ---- */

static aq_core_context *context;

static void set_time(double ms) {
  card_ms = ms;
  now_ns = BOOT + (uint64_t)(ms * 1e6);
}

static void run(double from_ms, double to_ms, uintptr_t stream) {
  aq_batch *batch = submit(context, stream, new_event);
  ((instant *)batch->events.start)->at_ms = from_ms;
  ((instant *)batch->events.end)->at_ms = to_ms;
}

/* One batch of stream 1, and one of stream 2 under it that ends just before the reference is too old, where it is about to be. */
static double advance(double at_ms) {
  double reference_ms = ((instant *)context->reference)->at_ms, to_ms = at_ms + LENGTH_MS;
  bool renews = to_ms > reference_ms + RENEWED_MS;
  if (renews) to_ms = reference_ms + RENEWED_MS + 0.05;
  set_time(at_ms - 0.05);
  run(at_ms, to_ms, 16);
  if (renews) run(at_ms, reference_ms + RENEWED_MS - 0.05, 17);
  set_time(to_ms + 0.1);
  poll();
  return to_ms;
}

int main(void) {
  double at_ms = 1, ran_ms = 0;
  aq_slice.control = &control;
  aq_slice.usage = &usage;
  aq_cuda_table.cuEventQuery = query;
  aq_cuda_table.cuEventElapsedTime = elapsed_time;
  aq_cuda_table.cuCtxSetCurrent = set_current;
  aq_core_context made = {.handle = (CUcontext)1, .reference = new_event()};
  context = aq_core_context_add(&made);
  context->referenced = true;
  pthread_mutex_lock(&lock);
  for (double to_ms; at_ms < SECONDS * 1000; at_ms = to_ms + 0.2) {
    to_ms = advance(at_ms);
    ran_ms += to_ms - at_ms;
  }
  set_time(at_ms + 1);
  poll();
  double apart_ms = ((double)context->offset.most - (double)BOOT) / 1e6 - ((instant *)context->reference)->at_ms;
  printf("%.0f %.0f %.0f\n", (double)usage.cards[0].busy_ns / 1e3, ran_ms * 1e3, apart_ms * 1e3);
  return 0;
}
