/* Hooks of what submits work. They hold no policy: with the gate open the driver's function is all there is; else the
 * submission is announced, made and closed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"
#include "loader.h"

/* Calls the driver's function, through the gate if it is not open. `what` stands for the work when its cost is learnt. */
#define SUBMIT(symbol, what, stream, ...)                   \
  do {                                                      \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;      \
    if (aq_gate_free()) return AQ_CUDA(symbol)(__VA_ARGS__); \
    aq_submission submission;                               \
    aq_submit_begin(&submission, what, stream);             \
    CUresult result = AQ_CUDA(symbol)(__VA_ARGS__);         \
    aq_submit_end(&submission, result);                     \
    return result;                                          \
  } while (0)

/* In the per-thread flavour the default stream is the calling thread's own. */
static CUstream per_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **params, void **extra) {
  SUBMIT(cuLaunchKernel, function, stream, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
         params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                             CUstream stream, void **params, void **extra) {
  SUBMIT(cuLaunchKernel_ptsz, function, per_thread(stream), function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
         shared, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  SUBMIT(cuLaunchKernelEx, function, config ? config->stream : NULL, config, function, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  SUBMIT(cuLaunchKernelEx_ptsz, function, per_thread(config ? config->stream : NULL), config, function, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                                   CUstream stream, void **params) {
  SUBMIT(cuLaunchCooperativeKernel, function, stream, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
         stream, params);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                        unsigned int shared, CUstream stream, void **params) {
  SUBMIT(cuLaunchCooperativeKernel_ptsz, function, per_thread(stream), function, grid_x, grid_y, grid_z, block_x, block_y,
         block_z, shared, stream, params);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags) {
  CUfunction function = launches && count ? launches->function : NULL;
  SUBMIT(cuLaunchCooperativeKernelMultiDevice, function, function ? launches->stream : NULL, launches, count, flags);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) { SUBMIT(cuGraphLaunch, graph, stream, graph, stream); }

CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  SUBMIT(cuGraphLaunch_ptsz, graph, per_thread(stream), graph, stream);
}

CUresult cuStreamDestroy(CUstream stream) {
  if (!AQ_CUDA(cuStreamDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_submit_stream_ends(stream);
  return AQ_CUDA(cuStreamDestroy)(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  if (!AQ_CUDA(cuStreamDestroy_v2)) return CUDA_ERROR_NOT_FOUND;
  aq_submit_stream_ends(stream);
  return AQ_CUDA(cuStreamDestroy_v2)(stream);
}

CUresult cuLaunch(CUfunction function) { SUBMIT(cuLaunch, function, NULL, function); }

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  SUBMIT(cuLaunchGrid, function, NULL, function, width, height);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  SUBMIT(cuLaunchGridAsync, function, stream, function, width, height, stream);
}
