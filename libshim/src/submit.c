/* Hooks of what submits work. They hold no policy: where the gate lets a submission pass, the driver's function is all
 * there is; else it is announced, made and closed.
 *
 * A launch that passes ends in a jump to the driver with its arguments where they are. That takes a function of the same
 * parameters to jump to, always: until the driver's is known, it is the slow way round.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"
#include "cost.h"
#include "graph_memory.h"
#include "lane.h"
#include "loader.h"

/* Defines `submit`, which passes the gate with `symbol`. `what` stands for the work when its cost is learnt, `stream` is
 * where it goes; both can be told if `valid`. `passes`: aq_gate_pass of these. */
#define SUBMITTER(submit, symbol, flavour, valid, passes, what, stream, parameters, arguments)                          \
  typedef CUresult(*symbol##_function) parameters;                                                                      \
  static __attribute__((noinline, cold)) CUresult symbol##_slowly parameters;                                           \
  static symbol##_function symbol##_goes = symbol##_slowly;                                                             \
                                                                                                                        \
  static CUresult symbol##_slowly parameters {                                                                          \
    symbol##_function driver = (symbol##_function)(void *)AQ_CUDA(symbol);                                              \
    if (!driver) return CUDA_ERROR_NOT_FOUND;                                                                           \
    __atomic_store_n(&symbol##_goes, driver, __ATOMIC_RELAXED);                                                         \
    aq_submission submission;                                                                                           \
    if (!(valid)) return driver arguments;                                                                              \
    aq_submit_begin(&submission, what, stream, AQ_STREAM_##flavour);                                                    \
    CUresult result = driver arguments;                                                                                 \
    aq_submit_end(&submission, result);                                                                                 \
    return result;                                                                                                      \
  }                                                                                                                     \
                                                                                                                        \
  CUresult submit parameters {                                                                                          \
    if (!(valid) || !(passes)) return symbol##_slowly arguments;                                                        \
    return __atomic_load_n(&symbol##_goes, __ATOMIC_RELAXED) arguments;                                                 \
  }

/* The same as the hook itself. It has a name of its own in C because its parameters may be written otherwise than in the
 * table (STACKED). */
#define SUBMISSION_THAT(passes, symbol, flavour, valid, what, stream, parameters, arguments) \
  AQ_EXPORT CUresult symbol##_hook parameters __asm__(#symbol);                              \
  SUBMITTER(symbol##_hook, symbol, flavour, valid, passes, what, stream, parameters, arguments)
#define SUBMISSION(symbol, flavour, valid, what, stream, parameters, arguments)                                      \
  SUBMISSION_THAT(aq_gate_pass(what, stream, AQ_STREAM_##flavour), symbol, flavour, valid, what, stream, parameters, \
                  arguments)

/* The parameters of a launch, of which six are in registers on x86-64 and the others on the stack, eight bytes each. Taken
 * one by one, a compiler loads the latter and stores them again before it jumps; taken as one object of that layout,
 * which the ABI puts in the same place, they stay where they are. */
#ifdef __x86_64__
#define STACKED(...)                \
  struct {                          \
    uint64_t block_z, shared;       \
    CUstream stream;                \
    void **params __VA_ARGS__;      \
  }
typedef STACKED(, **extra) aq_kernel_rest;
typedef STACKED() aq_cooperative_rest;
static_assert(sizeof(aq_kernel_rest) == 40 && sizeof(aq_cooperative_rest) == 32, "eight bytes a parameter");
#define LAUNCH(rest)                                                                                                      \
  CUfunction function, uint64_t grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
      unsigned int block_y, rest on_stack
#define KERNEL_PARAMETERS (LAUNCH(aq_kernel_rest))
#define KERNEL_ARGUMENTS (function, grid_x, grid_y, grid_z, block_x, block_y, on_stack)
#define COOPERATIVE_PARAMETERS (LAUNCH(aq_cooperative_rest))
#define COOPERATIVE_ARGUMENTS KERNEL_ARGUMENTS
#define LAUNCH_STREAM on_stack.stream
#else
#define LAUNCH                                                                                                \
  CUfunction function, uint64_t grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
      unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params
#define LAUNCHED function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params
#define KERNEL_PARAMETERS (LAUNCH, void **extra)
#define KERNEL_ARGUMENTS (LAUNCHED, extra)
#define COOPERATIVE_PARAMETERS (LAUNCH)
#define COOPERATIVE_ARGUMENTS (LAUNCHED)
#define LAUNCH_STREAM stream
#endif
#define KERNEL aq_kernel(function, grid_x)

SUBMISSION(cuLaunchKernel, LEGACY, true, KERNEL, LAUNCH_STREAM, KERNEL_PARAMETERS, KERNEL_ARGUMENTS)
SUBMISSION(cuLaunchKernel_ptsz, PER_THREAD, true, KERNEL, LAUNCH_STREAM, KERNEL_PARAMETERS, KERNEL_ARGUMENTS)
SUBMISSION(cuLaunchCooperativeKernel, LEGACY, true, KERNEL, LAUNCH_STREAM, COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)
SUBMISSION(cuLaunchCooperativeKernel_ptsz, PER_THREAD, true, KERNEL, LAUNCH_STREAM, COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)

/* Without a configuration the driver has an error to tell. */
#define EXTENDED(symbol, flavour)                                                                                 \
  SUBMISSION_THAT(aq_gate_pass_with(function, config->grid, config->stream, AQ_STREAM_##flavour), symbol, flavour, \
                  config, aq_kernel(function, aq_width_and_height(config->grid)), config->stream,                  \
                  (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),                 \
                  (config, function, params, extra))
EXTENDED(cuLaunchKernelEx, LEGACY)
EXTENDED(cuLaunchKernelEx_ptsz, PER_THREAD)

/* Graphs may have memory nodes, and then a launch takes memory (graph_memory.c). That is a function of the same parameters,
 * lest a launch without moves them about for it. */
#define GRAPH(symbol, flavour)                                                                                             \
  static inline __attribute__((always_inline)) CUresult submit_##symbol(CUgraphExec graph, CUstream stream);               \
  SUBMITTER(submit_##symbol, symbol, flavour, true, aq_gate_pass(graph, stream, AQ_STREAM_##flavour), graph, stream,       \
            (CUgraphExec graph, CUstream stream), (graph, stream))                                                         \
                                                                                                                           \
  static __attribute__((noinline, cold)) CUresult symbol##_with_memory(CUgraphExec graph, CUstream stream) {               \
    return aq_graph_memory_call(submit_##symbol, graph, stream, AQ_STREAM_##flavour);                                      \
  }                                                                                                                        \
                                                                                                                           \
  CUresult symbol(CUgraphExec graph, CUstream stream) {                                                                    \
    return aq_graph_memory_any() ? symbol##_with_memory(graph, stream) : submit_##symbol(graph, stream);                   \
  }
GRAPH(cuGraphLaunch, LEGACY)
GRAPH(cuGraphLaunch_ptsz, PER_THREAD)

/* Gated and measured on each of its devices. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags) {
  aq_joint joint;
  if (!AQ_CUDA(cuLaunchCooperativeKernelMultiDevice)) return CUDA_ERROR_NOT_FOUND;
  if (!launches || !count || aq_gate_free()) return AQ_CUDA(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
  aq_joint_begin(&joint, launches, count);
  CUresult result = AQ_CUDA(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
  aq_joint_end(&joint, result);
  return result;
}

/* As before CUDA 4, with shape and parameters set on the function. */
static const CUstream default_stream;
SUBMISSION(cuLaunch, LEGACY, true, function, default_stream, (CUfunction function), (function))
SUBMISSION(cuLaunchGrid, LEGACY, true, aq_kernel(function, (uint64_t)width), default_stream, (CUfunction function, int width, int height), (function, width, height))
SUBMISSION(cuLaunchGridAsync, LEGACY, true, aq_kernel(function, (uint64_t)width), stream, (CUfunction function, int width, int height, CUstream stream),
           (function, width, height, stream))

/* ---- streams that end ---- */

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
