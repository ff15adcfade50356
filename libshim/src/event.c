/* Events that take part in no capture.
 * SPDX-License-Identifier: Apache-2.0 */
#include "event.h"

#include "capture.h"
#include "loader.h"

CUevent aq_event_new(void) {
  CUevent event = NULL;
  int mode = aq_captures_relax();
  if (!AQ_CUDA(cuEventCreate) || AQ_CUDA(cuEventCreate)(&event, 0) != CUDA_SUCCESS) event = NULL;
  aq_captures_restore(mode);
  return event;
}

bool aq_events_new(aq_events *events) {
  events->start = aq_event_new();
  events->end = events->start ? aq_event_new() : NULL;
  if (!events->end) aq_events_end(events);
  return events->end;
}

void aq_event_end(CUevent event) {
  if (event && AQ_CUDA(cuEventDestroy_v2)) AQ_CUDA(cuEventDestroy_v2)(event);
}

void aq_events_end(const aq_events *events) {
  aq_event_end(events->start);
  aq_event_end(events->end);
}
