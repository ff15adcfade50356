/* What the calling thread may do while streams are captured.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CAPTURE_H
#define AQ_CAPTURE_H

#include "loader.h"

/* Until aq_captures_restore is given what this returns, nothing that the thread calls spoils a capture, or is refused because of one. */
static inline int aq_captures_relax(void) {
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (AQ_CUDA(cuThreadExchangeStreamCaptureMode)) AQ_CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
  return mode;
}

static inline void aq_captures_restore(int mode) {
  if (AQ_CUDA(cuThreadExchangeStreamCaptureMode)) AQ_CUDA(cuThreadExchangeStreamCaptureMode)(&mode);
}

#endif
