/* Events that take part in no capture.
 * SPDX-License-Identifier: Apache-2.0 */
#include "event.h"

#include "loader.h"
#include "stream.h"

CUevent aq_event_new(void) {
  CUevent event = NULL;
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* of this thread: making an event must not spoil its capture */
  bool exchanged = AQ_CUDA(cuThreadExchangeStreamCaptureMode) && !AQ_CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
  if (!AQ_CUDA(cuEventCreate) || AQ_CUDA(cuEventCreate)(&event, 0) != CUDA_SUCCESS) event = NULL;
  if (exchanged) AQ_CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
  return event;
}

CUevent aq_event_mark(CUstream stream, CUcontext *in) {
  CUevent event = NULL;
  bool entered = aq_stream_enter(stream);
  bool made = AQ_CUDA(cuEventCreate) && !AQ_CUDA(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
  bool marked = made && AQ_CUDA(cuEventRecord) && !AQ_CUDA(cuEventRecord)(event, stream);
  if (made && !marked) AQ_CUDA(cuEventDestroy_v2)(event);
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(in);
  if (entered) aq_stream_leave();
  return marked ? event : NULL;
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
