/* Hooks of what ends a context. Its events end with it, so while the driver takes it down nobody may ask about them;
 * and so does the plain memory made in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"
#include "loader.h"
#include "memory.h"

static CUresult end_context(CUresult (*end)(CUcontext), CUcontext context) {
  if (!end) return CUDA_ERROR_NOT_FOUND;
  aq_compute_pause();
  CUresult result = end(context);
  if (result == CUDA_SUCCESS) aq_compute_drop_context(context);
  aq_compute_resume();
  return result;
}

static CUresult destroy_context(CUresult (*destroy)(CUcontext), CUcontext context) {
  CUresult result = end_context(destroy, context);
  if (result == CUDA_SUCCESS) aq_memory_context_ended(context);
  return result;
}

/* The primary context goes with its last release; the driver is asked whether that was it. */
static CUresult end_primary(CUresult (*end)(CUdevice), CUdevice device) {
  unsigned int flags;
  int active = 0;
  if (!end) return CUDA_ERROR_NOT_FOUND;
  CUcontext primary = aq_memory_primary(device);
  aq_compute_pause();
  CUresult result = end(device);
  CUresult known = AQ_CUDA(cuDevicePrimaryCtxGetState) ? AQ_CUDA(cuDevicePrimaryCtxGetState)(device, &flags, &active) : 0;
  if (result == CUDA_SUCCESS && (known != CUDA_SUCCESS || !active)) aq_compute_drop_device(device);
  aq_compute_resume();
  if (result == CUDA_SUCCESS && known == CUDA_SUCCESS && !active) aq_memory_context_ended(primary);
  return result;
}

CUresult cuCtxDestroy(CUcontext context) { return destroy_context(AQ_CUDA(cuCtxDestroy), context); }
CUresult cuCtxDestroy_v2(CUcontext context) { return destroy_context(AQ_CUDA(cuCtxDestroy_v2), context); }
/* Others may still be attached to it: what is charged stays charged. */
CUresult cuCtxDetach(CUcontext context) { return end_context(AQ_CUDA(cuCtxDetach), context); }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxRelease), device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxRelease_v2), device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxReset), device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxReset_v2), device); }
