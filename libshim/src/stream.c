/* A stream may be used from another context than its own, even another device's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include "cards.h"
#include "loader.h"

#define LAST_SPECIAL_STREAM 2 /* NULL, legacy and per-thread default streams are the current context's */

static bool is_own(CUstream stream) { return (uintptr_t)stream > LAST_SPECIAL_STREAM; }

/* Only newer drivers tell the device at once. */
CUresult aq_stream_device(CUstream stream, CUdevice *device) {
  if (is_own(stream) && AQ_CUDA(cuStreamGetDevice) && !AQ_CUDA(cuStreamGetDevice)(stream, device)) return CUDA_SUCCESS;
  bool entered = aq_stream_enter(stream);
  CUresult result = aq_current_device(device);
  if (entered) aq_stream_leave();
  return result;
}

bool aq_stream_is_capturing(CUstream stream) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!AQ_CUDA(cuStreamIsCapturing) || AQ_CUDA(cuStreamIsCapturing)(stream, &status)) return false;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* NULL: that of the thread, or the driver cannot tell. */
static CUcontext own_context(CUstream stream) {
  CUcontext context;
  if (!is_own(stream) || !AQ_CUDA(cuStreamGetCtx) || !AQ_CUDA(cuCtxPushCurrent_v2) || !AQ_CUDA(cuCtxPopCurrent_v2)) return NULL;
  return AQ_CUDA(cuStreamGetCtx)(stream, &context) ? NULL : context;
}

static bool push(CUcontext context) { return context && !AQ_CUDA(cuCtxPushCurrent_v2)(context); }

bool aq_stream_enter(CUstream stream) { return push(own_context(stream)); }

bool aq_stream_enter_other(CUstream stream, CUcontext current) {
  CUcontext own = own_context(stream);
  return own != current && push(own);
}

void aq_stream_leave(void) {
  CUcontext left;
  AQ_CUDA(cuCtxPopCurrent_v2)(&left);
}

CUevent aq_stream_mark(CUstream stream, CUcontext *in) {
  CUevent event = NULL;
  bool entered = aq_stream_enter(stream);
  bool made = AQ_CUDA(cuEventCreate) && !AQ_CUDA(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING);
  bool marked = made && AQ_CUDA(cuEventRecord) && !AQ_CUDA(cuEventRecord)(event, stream);
  if (made && !marked) AQ_CUDA(cuEventDestroy_v2)(event);
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(in);
  if (entered) aq_stream_leave();
  return marked ? event : NULL;
}
