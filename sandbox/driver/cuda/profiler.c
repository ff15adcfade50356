/* The profiler's switch: there is no profiler, so it does nothing. */
#include "context.h"

SIM_API CUresult cuProfilerStart(void)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuProfilerStop(void)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return CUDA_SUCCESS;
}
